"""Decides: what a task is, where it may run, and whether its pools allow it.

A `Task` comes in, and a `RouteDecision` goes out. Start with `classify/`, then `decide/`.
"""
