"""How one task runs on several engines: when each generation begins, and what is shown.

Deltas of the branches come in; actions (forward, start, cancel, end) go out. Read `actions.py`
first, then `race.py`.
"""
