"""Says what is wrong with a set-up: facts are read at the edges, and judged by pure functions.

Read `findings.py` first: what a finding is, and each judgement. `facts.py` reads what they judge,
`engines.py` asks an engine once, `examination.py` goes through all of it.
"""
