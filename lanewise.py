"""The Python SDK under the product's name: `from lanewise import connect`."""

from gateway.client import *  # noqa: F403
from gateway.client import __all__ as _asynchronous
from gateway.client_sync import SyncClient, SyncStream, connect_sync

__all__ = [*_asynchronous, "SyncClient", "SyncStream", "connect_sync"]
