"""Connects to HTTP and WebSocket servers and passes bytes on as they arrive.

A request goes out; each piece of the response reaches a listener within the read that brought it.
Read `http_client.py` or `quick_connection.py`.
"""
