"""Responses whose client lost its connection: they go on for a while, and the client comes back.

A job of a lost connection comes in; a create that comes back to it goes out with it. Read
`matching.py` first: which creates come back, and to what. Then `rejoins.py`.
"""
