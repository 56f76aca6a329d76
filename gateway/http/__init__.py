"""Serves the routes under `/v1`: each authenticates, calls one function and answers.

HTTP requests come in; JSON or server-sent events go out. Read `routes.py` first.
"""
