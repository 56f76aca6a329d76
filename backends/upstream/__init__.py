"""Uses any OpenAI-compatible server as a backend.

A `GenerateRequest` becomes a request of that server's protocol; its events become deltas and one
`Finish`. Read `backend.py` first, then `request_body.py`; `answer/` reads what comes back.
"""
