"""Shows a server its keys: one of the environment, or several of a file, used in turn.

A key that the server refuses or limits rests for a while, and the others go on. This is an edge.
"""

import os
from pathlib import Path
from typing import Literal, Protocol

MAX_KEYS = 256
MAX_FILE_BYTES = 65_536
REFUSED = (401, 403)
LIMITED = 429
REFUSED_REST_US = 60_000_000  # of a key that the server does not take
LIMITED_REST_US = 1_000_000  # where it does not say for how long
HIDDEN = "***"  # in place of a key that a server quotes
LEAST_HIDDEN_CHARS = 4  # of a key, or of its beginning where a text was cut


class KeyOptions(Protocol):
    """Says where the keys are, and which header shows one."""

    @property
    def key_env(self) -> str | None: ...

    @property
    def key_file(self) -> str | None: ...

    @property
    def key_header(self) -> Literal["authorization", "api-key"]: ...


class ServerKeys:
    """Says which key the next request shows, and remembers which of them rest."""

    def __init__(self, options: KeyOptions) -> None:
        """Raises `ValueError` if there is no key where one is named."""
        keys = read_keys(options)
        self.headers = [_header(options, key) for key in keys] or [{}]
        # The longest first, as one may be the beginning of another.
        self._secrets = sorted((k for k in keys if len(k) >= LEAST_HIDDEN_CHARS), key=len)[::-1]
        self._out_until_us = [0] * len(self.headers)
        self._next = 0

    def take(self, now_us: int) -> int:
        """Returns the number of the next key in turn; if all rest, of the one that ends first."""
        if len(self.headers) == 1:
            return 0  # it never rests
        number = self._next
        for offset in range(len(self.headers)):
            candidate = (number + offset) % len(self.headers)
            if self._out_until_us[candidate] <= now_us:
                self._next = (candidate + 1) % len(self.headers)
                return candidate
        return min(range(len(self.headers)), key=self._out_until_us.__getitem__)

    def rest(self, number: int, status: int, retry_after_us: int | None, now_us: int) -> bool:
        """Lets a key rest for which the server answered so; returns whether another is free.

        Of one key alone nothing is remembered: what becomes of the server is for its health.
        """
        if status not in (*REFUSED, LIMITED) or len(self.headers) == 1:
            return False
        usual_us = LIMITED_REST_US if status == LIMITED else REFUSED_REST_US
        self._out_until_us[number] = now_us + (retry_after_us or usual_us)
        return any(out_us <= now_us for out_us in self._out_until_us)

    def hidden(self, text: str) -> str:
        """Returns a server's words without our keys, which nobody behind us may read.

        Words are cut where they are long, so the beginning of a key at their end is hidden, too.
        """
        for key in self._secrets:
            text = text.replace(key, HIDDEN)
            for num_chars in range(min(len(key), len(text)), LEAST_HIDDEN_CHARS - 1, -1):
                if text.endswith(key[:num_chars]):
                    text = text[:-num_chars] + HIDDEN
                    break
        return text


def read_keys(options: KeyOptions) -> tuple[str, ...]:
    """Reads the keys; raises `ValueError` that says what is missing."""
    if options.key_file is not None:
        return _read_file(options.key_file)
    if options.key_env is None:
        return ()
    key = os.environ.get(options.key_env, "").strip()
    if not key:
        raise ValueError(f"key_env: the environment variable {options.key_env} is not set")
    _check(key, f"key_env: the environment variable {options.key_env}")
    return (key,)


def _read_file(path: str) -> tuple[str, ...]:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        text = content.decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"key_file {path!r}: {error}") from error
    lines = (line.strip() for line in text.splitlines())
    keys = tuple(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
    if not 1 <= len(keys) <= MAX_KEYS or len(content) > MAX_FILE_BYTES:
        message = f"expected 1 to {MAX_KEYS} keys, one on a line, in {MAX_FILE_BYTES} bytes at most"
        raise ValueError(f"key_file {path!r}: {message}; got {len(keys)} in {len(content)}")
    for key in keys:
        _check(key, f"key_file {path!r}")
    return keys


def _check(key: str, where: str) -> None:
    """Raises `ValueError` for a key that no header can hold."""
    if not (key.isascii() and key.isprintable()):
        raise ValueError(f"{where}: a key has characters that are not printable ASCII")


def _header(options: KeyOptions, key: str) -> dict[str, str]:
    if options.key_header == "api-key":
        return {"api-key": key}
    return {"authorization": f"Bearer {key}"}
