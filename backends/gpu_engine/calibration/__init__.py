"""Fits the GPU constants to published measurements and request logs, and compares predictions.

Rows and logs come in; constants and tables of errors go out. Nothing here is loaded when serving.
Read `fit_plans.py` first, then `calibrate.py`.
"""
