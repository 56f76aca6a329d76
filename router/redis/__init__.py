"""Connections to Redis: one server, a Sentinel's master, or a Cluster.

Calls come in, and answers come back within a budget or raise an error. Read `servers.py` first;
`client.py` is for what is not on a task's path.
"""
