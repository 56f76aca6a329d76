"""Passes on requests that are no generations: embeddings and legacy completions.

In go a body and a path's options, out comes the answer of the model's server. Read `relay` first.
"""
