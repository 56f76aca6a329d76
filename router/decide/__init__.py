"""Decides about one task: weighs, ranks, admits.

A task's class, the policy and a snapshot of the backends come in; a `RouteDecision` goes out. Read
`weighing.py`, `ranking.py` and `admission.py` in this order.
"""
