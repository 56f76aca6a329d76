"""Traces of tasks for OpenTelemetry: nothing is noted unless a collector is configured.

In comes the caller's W3C context and the steps of a task's life; out go spans. `trace.py` is what a
task carries with it, `tracer.py` sends it when the task ends.
"""
