"""Reads and writes the wire protocol, purely: Responses as Structs, and back to bytes.

Bytes of a client come in as events; a response's deltas go out as numbered events. Read
`events.py`, `requests.py` and `response.py`.
"""
