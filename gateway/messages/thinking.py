"""Signs thinking blocks: a client sends them back, and the engine that wrote them reads them.

A signature is `lwt1.DIGEST.SEALED`: a digest of the text that was shown, and what an upstream
encrypted of its reasoning, which only that upstream reads and verifies. What another service signed
is left out, as is a block whose text was changed: neither would mean anything to our engines.
"""

import hashlib

_PREFIX = "lwt1."


def signature(thinking: str, sealed: str) -> str:
    """Signs a block of this text; `sealed` is empty where nothing was encrypted."""
    return f"{_PREFIX}{_digest(thinking)}.{sealed}"


def sealed_in(thinking: str, signed: str) -> str | None:
    """Returns the encrypted reasoning of a block that was made here; None for any other block."""
    digest, _, sealed = signed.removeprefix(_PREFIX).partition(".")
    is_ours = signed.startswith(_PREFIX) and digest == _digest(thinking)
    return sealed if is_ours and sealed else None


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
