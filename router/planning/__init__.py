"""Finds how many servers of which kinds meet an objective, by simulating fleets on a trace.

`terms.py` says what is asked, `cells.py` simulates one fleet, `search.py` chooses which.
"""
