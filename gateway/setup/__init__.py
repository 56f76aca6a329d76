"""Makes a configuration out of nothing: finds the engines there are, and writes one for them.

Read `providers.py` first: the table of who serves engines. `found.py` looks for keys and local
servers, `configuration.py` writes the file, `snippets.py` what clients need.
"""
