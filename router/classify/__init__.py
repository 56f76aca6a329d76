"""Classifies a task's kind of work by its words and its shape.

A `Task` comes in; a `TaskClass` with probabilities and reasons goes out. Read `task.py` first, then
`classify.py`.
"""
