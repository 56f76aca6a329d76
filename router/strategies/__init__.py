"""Runs one task on several engines: decides when each generation starts and what is shown.

Deltas of the branches come in; actions (forward, start, cancel, end) go out. `table.py` lists the
strategies; `hedge.py` is the simplest of them.
"""
