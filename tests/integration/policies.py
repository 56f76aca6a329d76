"""Holds two policies that differ."""

ONE = b'version = "one"\n[[rules]]\nname = "all"\nroute = "fast"\n'

TWO = b'version = "two"\n[[rules]]\nname = "all"\nroute = "deep"\n'
