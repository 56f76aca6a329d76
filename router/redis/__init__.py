"""Connects to Redis: to one server, a Sentinel's master, or a Cluster.

Commands go in, and replies come back within a budget or raise an error. Read `servers.py` first;
`client.py` is for calls off a task's path.
"""
