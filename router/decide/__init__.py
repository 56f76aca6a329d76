"""The decision about one task: weigh, rank, admit.

A task's class, the policy and a snapshot of the backends come in; a `RouteDecision` goes out. Read
`weighing.py`, `ranking.py` and `admission.py` in this order.
"""
