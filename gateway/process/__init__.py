"""Holds the composition root: it makes and wires all parts, and closes them in order.

A `Config` comes in, and a serving process goes out. Read `app.py` first, then `server.py`.
"""
