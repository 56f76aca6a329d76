"""Requests that are no generations, passed on: embeddings and legacy completions.

In go a body and a path's options, out comes the answer of the model's server. Read `relay` first.
"""
