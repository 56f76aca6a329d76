"""Loads the certificate that a configuration names. This is an edge."""

import ssl

from gateway.config.sections import ConfigError, ServerConfig


def tls_context(server: ServerConfig) -> ssl.SSLContext | None:
    """Loads the certificate and its key; None without them.

    Raises `ConfigError` if they cannot be used.
    """
    if server.tls_cert_path is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        load_certificate(context, server)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"server.tls_cert_path, server.tls_key_path: {error}") from error
    return context


def load_certificate(context: ssl.SSLContext, server: ServerConfig) -> None:
    """Loads what `server` names into a context; raises `OSError` or `ValueError`."""
    assert server.tls_cert_path is not None
    # Without a password, OpenSSL would ask on the terminal for an encrypted key's.
    context.load_cert_chain(server.tls_cert_path, server.tls_key_path, password="")
