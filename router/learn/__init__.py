"""Learns from outcomes what each tenant gains from the deep engine over the fast one.

Outcomes come in; corrections to the next decision, and drift alarms, go out. Read `learning.py`
first, then `experience.py`.
"""
