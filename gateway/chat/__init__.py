"""Chat completions, the older protocol: read as the Responses request that means the same.

A body comes in, a `ParsedCreate` goes out; deltas come in, chunks go out. Read `request.py` first.
"""
