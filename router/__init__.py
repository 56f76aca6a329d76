"""The decision: what a task is, where it may run, and whether its pools allow it."""
