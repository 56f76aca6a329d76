"""Simulates a grid of processing elements that computes, to check the cost model's counts.

Weights and token ids come in; logits, and counts of what was computed and moved, go out. Read
`mesh.py` first, then `transformer.py`.
"""
