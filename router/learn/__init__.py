"""What outcomes teach: per tenant, what the deep engine gains over the fast one.

Outcomes come in; corrections to the next decision, and drift alarms, go out. Read `learning.py`
first, then `experience.py`.
"""
