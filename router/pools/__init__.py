"""Limits rates by pools: reserves before a task and settles after it, exactly once.

`Demand`s come in; a `Grant` or a refusal goes out. Read `pools.py` first, then `pools.lua` and
`redis_pools.py`.
"""
