"""Reads chat completions, the older protocol, as Responses requests that mean the same.

A body comes in, a `ParsedCreate` goes out; deltas come in, chunks go out. Read `request.py` first.
"""
