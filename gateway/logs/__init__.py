"""Writes the log of a process to standard error: lines of JSON, or text for a terminal.

In come records of Python's `logging` and a line per task; out go bytes, by a thread, so that a pipe
that nobody reads stops no stream. Read `set_up.py` first.
"""
