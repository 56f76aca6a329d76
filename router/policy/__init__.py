"""Defines the routing policy: rules as data, read, checked, compared and stored.

A TOML document comes in, and a `Policy` goes out, or every problem in it with its line. Read
`policy.py` first, then `conditions.py`.
"""
