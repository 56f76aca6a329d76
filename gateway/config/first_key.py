"""Finds the secrets of a container: in its environment, in files, or made at its first start.

This is an edge.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from gateway.config.command_error import CommandError

KEY_VARIABLE = "LANEWISE_API_KEY"
ADMIN_KEY_VARIABLE = "LANEWISE_ADMIN_KEY"
# Each may be a file's instead, as the secrets of Docker and Kubernetes are: NAME_FILE is its path.
_SECRET_VARIABLES = (
    KEY_VARIABLE,
    ADMIN_KEY_VARIABLE,
    "LANEWISE_KEY_PEPPERS",
    "LANEWISE_REDIS_URL",
)


def with_secret_files(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment with the contents of the files that `..._FILE` names.

    Raises `CommandError` if one cannot be read or is empty, or its variable is set as well.
    """
    found = {name: secret_of(environ, name) for name in _SECRET_VARIABLES}
    return {**environ, **{name: secret for name, secret in found.items() if secret is not None}}


def secret_of(environ: Mapping[str, str], name: str) -> str | None:
    """Returns one of the secrets: its variable's, or what stands in its file; None: neither is set.

    Raises `CommandError` as `with_secret_files` does.
    """
    path = environ.get(f"{name}_FILE")
    if not path:
        return environ.get(name)
    if environ.get(name):
        raise CommandError(f"{name}, {name}_FILE: set one of them, not both")
    try:
        return _secret_in(path)
    except (OSError, ValueError) as error:
        raise CommandError(f"{name}_FILE {path!r}: {error}") from error


def _secret_in(path: str) -> str:
    """Reads a file's secret; raises `OSError`, or `ValueError` if it is not text or has none.

    Without a secret the gateway would go on as if none were configured, with the published key.
    """
    secret = Path(path).read_text(encoding="utf-8-sig").strip()
    if not secret:
        raise ValueError("the file is empty")
    return secret


def pepper_file(path: str | None) -> str | None:
    """Returns what the file of `auth.peppers_path` holds; None if none is named.

    Raises `CommandError` if it cannot be read.
    """
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"auth.peppers_path {path!r}: {error}") from error


def first_key(path: str, *, makes: bool) -> str:
    """Returns the key in the file; without the file a new one, which is written there if `makes`.

    A key that is made is printed, this once. Raises `CommandError` if the file cannot be used.
    """
    try:
        return _secret_in(path)
    except FileNotFoundError:
        key = f"sk-{secrets.token_urlsafe(32)}"
    except (OSError, ValueError) as error:
        raise CommandError(f"auth.key_path {path!r}: {error}") from error
    if makes:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            # Only its owner may read the file, and another gateway's is not replaced.
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(handle, "w") as file:
                    file.write(f"{key}\n")
            except OSError:  # such as a full disk: the next start begins anew
                os.unlink(path)
                raise
        except OSError as error:
            message = f"auth.key_path {path!r}: no key can be made there: {error.strerror}"
            raise CommandError(f"{message}; or give one in {KEY_VARIABLE}") from error
        print(f"lanewise: made a key, kept in {path}; it is not shown again: {key}", flush=True)
    return key
