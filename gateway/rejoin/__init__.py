"""Lets responses go on whose client lost its connection, and lets the client come back to them.

A job of a lost connection comes in; a create that comes back to it goes out with it. Read
`matching.py` first: which creates come back, and to what. Then `rejoins.py`.
"""
