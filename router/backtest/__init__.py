"""Back-tests policies: a log's tasks run again, in virtual time, on simulated engines.

Arrivals and a scenario (policy, fleet, tenants) come in; a result of every task goes out. Read
`simulation.py` first; `run.py` drives the strategies.
"""
