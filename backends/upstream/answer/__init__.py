"""Reads what a server of the Responses or the Chat Completions API answers, and how it fails.

Read `reader.py` first, then `responses_events.py` and `responses_reader.py`.
"""
