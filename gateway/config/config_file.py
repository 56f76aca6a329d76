"""The configuration file that a command names."""

from pathlib import Path

from gateway.config.sections import ConfigError


def read_config(path: str | Path | None) -> bytes:
    """Its bytes; none where none is named.

    Raises:
        ConfigError: It cannot be read.
    """
    if path is None:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}") from error
