"""Follows JSON pointers within a document, as a schema's `$ref` has them (RFC 6901, 6)."""

from typing import Any


def pointed_at(reference: str, document: Any) -> Any:
    """Returns the part of a document that `#` or `#/...` names; raises LookupError if none is."""
    found = document
    for part in reference.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            raise LookupError(reference)
    return found
