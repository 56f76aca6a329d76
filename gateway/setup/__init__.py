"""From nothing to a configuration: which engines there are, and what to write for them.

Read `providers.py` first: the table of who serves engines. `found.py` looks for keys and local
servers, `configuration.py` writes the file, `snippets.py` what clients need.
"""
