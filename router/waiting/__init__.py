"""Decides which tasks wait for a full pool, in which order, and how long.

Waiting tasks and freed capacity come in; the task that starts next goes out. Read `fair_queue.py`
first.
"""
