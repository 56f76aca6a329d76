"""Offers the Python SDK under the product's name: `from lanewise import connect`.

This is an edge.
"""

from lanewise.client import *  # noqa: F403
from lanewise.client import __all__ as _asynchronous
from lanewise.sync import SyncClient, SyncStream, connect_sync

__all__ = [*_asynchronous, "SyncClient", "SyncStream", "connect_sync"]
