"""Defines the commands that administer a gateway over its admin API, one in each module.

Arguments come in and become requests by `gateway/cli/admin_client.py`; what it answers goes out as
text or JSON. Read `tiers.py` first, a short one.
"""
