"""The generations of a task while they run, and what they hold.

A decision comes in; merged deltas and one outcome go out, and every reservation is settled. Read
`dispatch.py` first.
"""
