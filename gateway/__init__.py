"""Is the edge: sockets, HTTP, the wire protocol, metrics, admin API and command line.

A client's requests come in, and its events go out. `task/pipeline.py` is the life of a task.
"""
