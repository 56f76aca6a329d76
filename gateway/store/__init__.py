"""What outlives a task: stored responses, the usage ledger, the decision log, policies.

Records come in, and are written to Redis or files beside the tasks. Read `response_store.py` and
`ledger.py`.
"""
