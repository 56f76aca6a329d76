"""Clients of HTTP and WebSocket servers that hand bytes on as they arrive.

A request goes out; pieces of the answer reach a listener within the read that brought them. Read
`http_client.py` or `quick_connection.py`.
"""
