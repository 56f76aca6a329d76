"""Models the GPU server as a machine: its parts, its constants, and what a step costs.

A batch comes in, and microseconds go out; `wafer_engine/batching` does the rest. Read `spec.py`,
then `cost.py`.
"""
