"""Runs an engine that has no clock on the event loop.

Sequences come in, and what each step yields is handed out when its time has come. Read `driver.py`
first.
"""
