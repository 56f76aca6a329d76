"""The edge: sockets, wire format, admin, metrics, command line."""

__version__ = "0.1.0"
