"""Runs the generations of a task, and knows what they hold.

A decision comes in; merged deltas and one outcome go out, and every reservation is settled. Read
`dispatch.py` first.
"""
