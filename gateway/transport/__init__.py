"""Bytes to clients: outgoing queues, flush times, WebSocket framing, keepalive.

Finished frames come in, and go out in as few writes as possible. Read `outbox.py` first, then
`socket_protocol.py`.
"""
