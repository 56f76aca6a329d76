"""`lanewise top` shows what the console's page *Live* shows, in a terminal.

The events of `GET /admin/events` come in; a screen goes out. Read `picture.py` first, which keeps
what was told, then `screen.py`, which draws it.
"""
