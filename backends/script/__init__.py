"""Writes what simulated engines answer; pure, and the same every time.

A request comes in, and a whole answer goes out: text, calls, structured output. Read `answering.py`
first.
"""
