"""What kind of work a task is, from its words and its shape.

A `Task` comes in; a `TaskClass` with probabilities and reasons goes out. Read `task.py` first, then
`classify.py`.
"""
