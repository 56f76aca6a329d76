"""Defines every Prometheus metric of the gateway.

Values that the tasks already have come in; `/metrics` goes out. Read `table.py` first.
"""
