"""Keeps what outlives a task: stored responses, the usage ledger, the decision log, policies.

Writers that run beside the tasks take records to Redis or files. Read `response_store.py` and
`ledger.py`.
"""
