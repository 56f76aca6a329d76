"""Models the GPU server as a machine: its parts, its constants, and the cost of a step.

It computes the microseconds of a batch's step; `wafer_engine/batching` does the rest. Read
`spec.py`, then `cost.py`.
"""
