"""Tells systemd how the gateway is, where it is a service of `Type=notify`. This is an edge."""

import contextlib
import os
import socket
import time

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(state: str) -> None:
    """Sends a state (sd_notify(3), read 2026-11); does nothing without `$NOTIFY_SOCKET`."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # of Linux's abstract names
        address = "\0" + address[1:]
    with (
        contextlib.suppress(OSError),  # a service manager that went away is no fault of ours
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
    ):
        sender.sendto(state.encode(), address)


def notify_reloading() -> None:
    """Says that the configuration is read again, until the next `READY`."""
    notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1_000}")
