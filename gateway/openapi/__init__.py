"""Makes the OpenAPI document at `/schema`: every operation's bodies, answers, events, and a page.

The framework's description of the routes comes in; what answers are made as bytes, which no type of
a handler says, is added from a table. Read `operations.py` first, the table.
"""
