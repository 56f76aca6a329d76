"""Defines the command line, with one module for each `lanewise` command.

Arguments come in; text and an exit status go out. Read `main.py` first.
"""
