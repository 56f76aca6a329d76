"""Turns a request into a stream of deltas, by simulated engines or by real servers.

A `GenerateRequest` comes in; `Delta`s and one `Finish` are pushed into a `Sink`. Read `contract.py`
first: every backend implements it.
"""
