"""Simulates a wafer-scale inference engine without a clock or I/O; it is usable alone.

Requests come in as counts of tokens, and tokens with their times go out. Start with
`batching/engine.py`, then `hardware/cost.py`.
"""
