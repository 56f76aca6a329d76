"""Handles a task, from its context to its settlement.

A `Job` comes in; its events, its settlement and its records go out. Read `pipeline.py` first: it
reads like the table in docs/architecture.md.
"""
