"""Runs continuous batching: the engine that both simulated machines share.

Sequences come in with `Engine.add`, and tokens with their times come out of `Engine.advance`; a
cost model computes how long a step takes. Read `engine.py` first, then `scheduler.py`.
"""
