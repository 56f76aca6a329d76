"""Parses the URL of a Redis server, of a master that Sentinels know, or of a Cluster.

redis://user:password@host:port/db            one server; rediss:// the same over TLS
unix:///path/to/socket?db=1                   one server on this machine
redis+sentinel://h1:p1,h2:p2/master/db        the master of that name, by these Sentinels
redis+cluster://h1:p1,h2:p2                   a Cluster, by some of its nodes

`rediss+sentinel://` and `rediss+cluster://` use TLS for all connections. The query may have the
options of `RedisTarget`, and user and password, too.
"""

from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

Kind = Literal["single", "sentinel", "cluster"]
Address = tuple[str, int]  # host and port; of a unix socket its path and 0

DEFAULT_PORT = 6379
DEFAULT_SENTINEL_PORT = 26379
_KINDS: dict[str, tuple[Kind, bool]] = {
    "redis": ("single", False),
    "rediss": ("single", True),
    "unix": ("single", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}


class RedisTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the parsed URL."""

    kind: Kind
    addresses: tuple[Address, ...]  # of the server, the Sentinels, or some of a Cluster's nodes
    is_unix: bool = False
    master: str = ""  # its name at the Sentinels
    db: int = 0
    username: str | None = None
    password: str | None = None
    sentinel_username: str | None = None  # to the Sentinels themselves
    sentinel_password: str | None = None
    tls: bool = False
    tls_verified: bool = True  # ssl_cert_reqs=none: the server's certificate is not checked
    tls_ca_path: str | None = None  # ssl_ca_certs
    tls_cert_path: str | None = None  # ssl_certfile: ours, with ssl_keyfile
    tls_key_path: str | None = None


def parse_redis_url(url: str) -> RedisTarget:
    """Parses a URL; a `ValueError` quotes nothing that may be a secret."""
    parts = urlsplit(url)
    if parts.scheme not in _KINDS:
        raise ValueError(f"the scheme is none of {'://, '.join(_KINDS)}://")
    kind, tls = _KINDS[parts.scheme]
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    credentials, _, hosts = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    path = [unquote(piece) for piece in parts.path.split("/") if piece]
    is_unix = parts.scheme == "unix"
    if is_unix:
        if not parts.path:
            raise ValueError("the path of the socket is missing")
        addresses: tuple[Address, ...] = ((unquote(parts.path), 0),)
        path = []
    else:
        port = DEFAULT_SENTINEL_PORT if kind == "sentinel" else DEFAULT_PORT
        names = hosts.split(",") if kind != "single" else [hosts]
        addresses = tuple(_address(name, port) for name in names)
    if kind == "sentinel" and not path:
        raise ValueError("the master's name is missing: redis+sentinel://host:port/master")
    master = path.pop(0) if kind == "sentinel" else ""
    number = options.pop("db") if "db" in options else path.pop(0) if path else "0"
    if path or not number.isdigit():
        raise ValueError("the database is not a number")
    if kind == "cluster" and int(number):
        raise ValueError("a Cluster has database 0 only")
    target = RedisTarget(
        kind=kind,
        addresses=addresses,
        is_unix=is_unix,
        master=master,
        db=int(number),
        username=options.pop("username", None) or unquote(username) or None,
        password=options.pop("password", None) or unquote(password) or None,
        sentinel_username=options.pop("sentinel_username", None),
        sentinel_password=options.pop("sentinel_password", None),
        tls=tls,
        tls_verified=options.pop("ssl_cert_reqs", "required") != "none",
        tls_ca_path=options.pop("ssl_ca_certs", None),
        tls_cert_path=options.pop("ssl_certfile", None),
        tls_key_path=options.pop("ssl_keyfile", None),
    )
    if options:
        raise ValueError(f"unknown options: {', '.join(sorted(options))}")
    return target


def _address(text: str, default_port: int) -> Address:
    host, _, port = text.rpartition(":")
    if not host or text.endswith("]"):  # no port: a bare host, or an IPv6 address in brackets
        host, port = text, ""
    host = host.removeprefix("[").removesuffix("]") or "localhost"
    if not port:
        return host, default_port
    if not port.isdigit() or not 1 <= int(port) <= 65_535:
        raise ValueError("a port is not a number from 1 to 65535")
    return host, int(port)
