"""Reads requests of Anthropic's Messages API as the Responses requests that mean the same.

Bytes of a client come in as a `CreateBody` of `gateway.wire`; a response's deltas go out as events
of this API, or as one message. Read `request.py`, `conversation.py` and `stream.py`.
"""
