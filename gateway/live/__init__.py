"""Shows the gateway as it is now, to people who watch it on the console.

While somebody watches, `feed.py` takes a sample of every worker four times a second and tells all
watchers what changed; while nobody does, nothing runs. Read `feed.py` first, then `sample.py`,
which says what is told, and `problems.py`, which says what counts as wrong.
"""
