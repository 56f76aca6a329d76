"""Holds other gateways and relays: one small file says how each is installed and started.

None of them is a dependency of ours: each lives in a folder of its own under `build/rivals`, made
when a comparison first needs it, from PyPI, npm or the distribution's packages.
"""
