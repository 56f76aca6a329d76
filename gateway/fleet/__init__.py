"""The other worker processes of this machine, as one of them sees them.

Questions go out through the supervisor, and each worker's answer comes back. Read `fleet.py` first.
"""
