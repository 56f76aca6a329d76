"""The decision log's format, and reports made from it and from labelled prompts.

Decisions and labels come in; lines of JSON and tables go out. Read `recording.py` first.
"""
