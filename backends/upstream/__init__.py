"""Any OpenAI-compatible server as a backend.

A `GenerateRequest` comes in and becomes a request of that server's protocol; its events become
deltas and one `Finish`. Read `backend.py` first, then `request_body.py` and `responses_reader.py`.
"""
