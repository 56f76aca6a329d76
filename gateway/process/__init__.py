"""The composition root: makes every part, wires them, and takes them down in order.

A `Config` comes in, and a serving process goes out. Read `app.py` first, then `server.py`.
"""
