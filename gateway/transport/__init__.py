"""Sends bytes to clients: outgoing queues, flush timer, WebSocket framing, keepalive.

Finished frames come in, and go out in as few writes as possible. Read `outbox.py` first, then
`socket_protocol.py`.
"""
