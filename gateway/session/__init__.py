"""Serves one WebSocket connection: its streams, their order and its limits.

Client events come in; jobs start, and server events go out. Read `session.py` first, then
`connection.py`.
"""
