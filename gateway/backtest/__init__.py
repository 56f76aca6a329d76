"""Asks back-tests of decision logs: for the command line, and for admins over HTTP.

Log files and a configuration come in, a report goes out. Read `inquiry.py` first.
"""
