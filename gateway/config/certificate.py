"""Loads the certificate that a configuration names, and reads when it ends. This is an edge."""

import contextlib
import ssl

from gateway.config.sections import ConfigError, ServerConfig

_ANY_TIME = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME


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
        certificate, key = server.tls_cert_path, server.tls_key_path
        raise ConfigError(
            f"server.tls_cert_path {certificate!r}, server.tls_key_path {key!r}: {error}; expected "
            "a PEM file with the certificate and those it was signed by, and one with its key, "
            "without a password"
        ) from error
    return context


def load_certificate(context: ssl.SSLContext, server: ServerConfig) -> None:
    """Loads what `server` names into a context; raises `OSError` or `ValueError`."""
    assert server.tls_cert_path is not None
    # Without a password, OpenSSL would ask on the terminal for an encrypted key's.
    context.load_cert_chain(server.tls_cert_path, server.tls_key_path, password="")


def expires_s(server: ServerConfig) -> float:
    """Returns when the certificate that `server` names ends, as Unix time; 0 without one.

    Python reads the dates of a certificate that somebody shows, so it is shown in memory. It is 0,
    too, where nobody could verify it, whatever the time.
    """
    if (shown := tls_context(server)) is None:
        return 0.0
    seen = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    seen.check_hostname = False
    seen.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _ANY_TIME
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLError):
        seen.load_verify_locations(server.tls_cert_path)
        server_side = shown.wrap_bio(to_server, to_client, server_side=True)
        client = seen.wrap_bio(to_client, to_server)
        for side in (client, server_side, client):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
        if certificate := client.getpeercert():
            return ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    return 0.0
