"""Authentication: keys, tenants, tiers and admins.

A request's headers come in; a `Tenant`, an admin or an error goes out. Read `access.py` first.
"""
