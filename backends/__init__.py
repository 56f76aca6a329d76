"""A request becomes a stream of deltas: simulated engines, or real servers as upstreams.

A `GenerateRequest` comes in; `Delta`s and one `Finish` are pushed into a `Sink`. Read `contract.py`
first: every backend keeps it.
"""
