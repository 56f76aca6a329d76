"""The simulated wafer and the simulated GPU server as backends.

A `GenerateRequest` comes in; a script says what is answered, and an engine says when. Read
`backend.py` first; `wafer.py` and `gpu.py` add the machines.
"""
