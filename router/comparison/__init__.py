"""Compares policies by their back-tests, and writes down what would be different.

A log and policies come in, a report goes out. Read `comparison.py` first.
"""
