"""Reads the addresses of gateways and webhooks as people type them, and says how to reach them."""

import urllib.request
from urllib.parse import urlsplit

from gateway.config.command_error import CommandError
from gateway.config.sections import is_loopback

DEFAULT_URL = "http://127.0.0.1:8080"


def http_url(text: str, name: str) -> str:
    """Returns an http or https URL without a slash at its end, http where no scheme is given.

    Raises `CommandError` that begins with `name`, the argument or setting that it came from.
    """
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https", "ws", "wss") and bool(parts.hostname)
        is_address = is_address and not any(map(str.isspace, url))
        _ = parts.port
    except ValueError:
        is_address = False
    if not is_address:
        raise CommandError(
            f"{name} {text!r}: expected HOST:PORT, http://HOST:PORT or https://HOST:PORT"
        )
    return ("http" + url[2:] if url.startswith("ws") else url).rstrip("/")


def opener_for(url: str) -> urllib.request.OpenerDirector:
    """Uses the environment's proxies, but not for this machine, which is another for a proxy."""
    if is_loopback(urlsplit(url).hostname or ""):
        return urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener()
