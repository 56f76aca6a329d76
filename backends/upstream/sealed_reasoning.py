"""Sealed reasoning on its way through: whose it is must be known when it comes back.

An upstream that stores nothing gives reasoning out encrypted and wants it back unchanged, under the
id it had there; any other upstream refuses it. Clients keep it as an opaque text, so that text
carries the model and the id.
"""

import base64

import msgspec

_PREFIX = "lwr1."  # of sealed reasoning that came through a gateway


def wrap(model: str, item_id: str, sealed: str) -> str:
    """What an upstream's model sealed, as clients see it."""
    origin = base64.urlsafe_b64encode(msgspec.json.encode((model, item_id)))
    return f"{_PREFIX}{origin.decode()}.{sealed}"


def unwrap(model: str, content: str) -> tuple[str, str] | None:
    """The id and the sealed content, if it was this model that sealed it."""
    if not content.startswith(_PREFIX):
        return None
    origin, _, sealed = content.removeprefix(_PREFIX).partition(".")
    try:
        sealer, item_id = msgspec.json.decode(
            base64.urlsafe_b64decode(origin), type=tuple[str, str]
        )
    except (ValueError, msgspec.DecodeError):  # not base64, or not ours after all
        return None
    return (item_id, sealed) if sealer == model else None
