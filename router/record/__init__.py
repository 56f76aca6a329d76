"""Defines the decision log's format, and evaluates classifiers on labelled prompts.

Decisions and labels come in; lines of JSON and tables go out. Read `recording.py` first.
"""
