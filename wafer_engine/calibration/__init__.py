"""Fits the constants to published measurements and compares predictions with them.

Rows of measurements come in; constants and tables of errors go out. Nothing here is loaded when
serving. Read `rows.py` first, which the GPU engine's calibration shares, then `calibrate.py`.
"""
