"""Reads what happens in an agent's run: its calls, their results, and what its user says of them.

In come a conversation's items, each once; out comes a `RunState`, which says whether the run is
stuck or goes well. Words of the ask decide where a run begins, this decides where it goes on. Begin
with `run_state.py`.
"""
