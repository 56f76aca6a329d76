"""Models the wafer as a machine: what it is, where a model lies on it, and what a step costs.

A model's shape and a batch come in, and microseconds go out. Read `spec.py` for the published
numbers, then `cost.py`.
"""
