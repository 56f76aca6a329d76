"""Reads which form of answer a prompt asks for in words: fields between marks, or JSON of a schema.

Clients that know no structured outputs of the API write into the prompt what they want instead: a
JSON schema (instructor, pydantic-ai), or fields with their types (DSPy). In comes the text, out
comes a `ToldFormat`: a schema, and how its instance is written. Read `told.py` first.
"""
