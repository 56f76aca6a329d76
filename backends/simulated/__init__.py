"""Wraps the simulated wafer and the simulated GPU server as backends.

A `GenerateRequest` comes in; a script decides the output, and an engine its timing. Read
`backend.py` first; `wafer.py` and `gpu.py` add the machines.
"""
