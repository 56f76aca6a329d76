"""Authenticates clients and admins, and knows the tenants and tiers.

A request's headers come in; a `Tenant`, an admin or an error goes out. Read `access.py` first.
"""
