"""Marks encrypted reasoning with the model that made it, for when a client sends it back.

An upstream that stores nothing returns reasoning encrypted and wants it back unchanged, under the
same id; any other upstream refuses it. Clients keep it as an opaque text, so that text carries the
model and the id.
"""

import base64

import msgspec

_PREFIX = "lwr1."  # of encrypted reasoning that passed a gateway


def wrap(model: str, item_id: str, sealed: str) -> str:
    """Returns an upstream's encrypted reasoning as clients see it."""
    origin = base64.urlsafe_b64encode(msgspec.json.encode((model, item_id)))
    return f"{_PREFIX}{origin.decode()}.{sealed}"


def unwrap(model: str, content: str) -> tuple[str, str] | None:
    """Returns the id and the encrypted content, or None if another model made it."""
    if not content.startswith(_PREFIX):
        return None
    origin, _, sealed = content.removeprefix(_PREFIX).partition(".")
    try:
        sealer, item_id = msgspec.json.decode(
            base64.urlsafe_b64decode(origin), type=tuple[str, str]
        )
    except (ValueError, msgspec.DecodeError):  # not base64, or not ours
        return None
    return (item_id, sealed) if sealer == model else None
