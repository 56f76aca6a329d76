"""Reads what a plan is asked for, and runs its simulations in processes or on a cluster.

`files.py` reads the trace, the objectives and the prices; `sweeps.py` runs cells.
"""
