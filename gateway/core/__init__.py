"""Holds what all tasks of a process share.

`Gateway` holds the parts, `Job` is one response from request to settlement. Read `gateway.py`
first.
"""
