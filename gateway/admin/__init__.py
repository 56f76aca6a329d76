"""Serves the admin API under `/admin`: policies, tenants, keys, learning, health.

An admin's requests come in; views as JSON go out. Read `routes.py` first.
"""
