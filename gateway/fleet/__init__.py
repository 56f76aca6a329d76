"""Connects the worker processes of this machine, through their supervisor.

Queries go out through the supervisor; each worker's reply comes back. Read `fleet.py` first.
"""
