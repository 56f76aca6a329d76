"""Defines the configuration: decoded from TOML once, checked once; every default lives here.

Bytes of TOML and the environment come in; a `Config` goes out. Read `config.py` first.
"""
