"""Models the wafer as a machine: its numbers, a model's placement on it, and the cost of a step.

A model's shape and a batch come in, and microseconds go out. Read `spec.py` for the published
numbers, then `cost.py`.
"""
