"""Holds a dialogue on a terminal: events of the SDK come in, what a person sees comes out.

Read `answer.py` first: an answer as it grows. `conversation.py` says what a typed line means,
`layout.py` draws parts of answers. `one_answer.py` and `screen.py` run it: once, or as a dialogue.
"""
