"""Finds the form of answer that a request asks for in words."""

import json
import re
from typing import Any

import msgspec

from backends.contract import GenerateRequest, Message
from backends.prompt import parts_text
from backends.script.formats.fields import asked_fields

MAX_READ_CHARS = 40_000  # of what an application says; a longer text is not searched for schemas
MAX_TRIES = 8  # opening braces at which a schema may begin

_WANTS_JSON = re.compile(
    r"(?i)\b(?:respond|reply|answer|return|output|provide)\b[^.]{0,120}\bjson\b"
)
# How clients end a prompt: about the form, with no value of the answer's in it.
_ABOUT_FORM = re.compile(r"(?:\n\n|^)(?:Respond with|Return the correct JSON response) .*\Z", re.S)
_MARK = re.compile(r"\[\[ ## \w{1,80} ## \]\]\n?")
_JSON_KEY = re.compile(r'"(\w{1,80})"\s*:')
_DECODER = json.JSONDecoder()


class ToldFormat(msgspec.Struct, frozen=True):
    """Describes the form of an answer."""

    schema: dict[str, Any]  # of a JSON object
    prompt: str  # the request's, without what it says about the form, and plain keys
    marked: bool  # whether each field stands below its mark; else the answer is JSON

    def written(self, value: Any) -> str:
        """Writes an instance of the schema."""
        if not self.marked or not isinstance(value, dict):
            return msgspec.json.encode(value).decode()
        fields = [*value.items(), ("completed", "")]
        return "\n\n".join(f"[[ ## {name} ## ]]\n{_as_text(each)}" for name, each in fields)


def told_format(request: GenerateRequest, prompt: str) -> ToldFormat | None:
    """Finds the form that the application's instructions ask for, if they do."""
    items = (measured.item for measured in request.items)
    said = [i for i in items if isinstance(i, Message) and i.role in ("system", "developer")]
    texts = [request.instructions or "", *(parts_text(message.content) for message in said)]
    told = "\n".join(text for text in texts if len(text) <= MAX_READ_CHARS)
    bare = _JSON_KEY.sub(r"\1:", _MARK.sub("", _ABOUT_FORM.sub("", prompt))).strip()
    if fields := asked_fields(told, prompt):
        return ToldFormat(fields, bare, marked="[[ ## completed ## ]]" in prompt)
    if request.text_format.type == "text" and not _WANTS_JSON.search(told):
        return None
    schema = _schema_in(told)
    return None if schema is None else ToldFormat(schema, bare, marked=False)


def _schema_in(text: str) -> dict[str, Any] | None:
    """Decodes the first JSON schema of an object in a text."""
    if '"properties"' not in text:
        return None
    start = -1
    for _ in range(MAX_TRIES):
        start = text.find("{", start + 1)
        if start < 0:
            return None
        try:
            found, _ = _DECODER.raw_decode(text, start)
            msgspec.json.encode(found)  # half a surrogate pair can be read, and not be written
        except (ValueError, RecursionError):
            continue
        if isinstance(found.get("properties"), dict):
            return dict(found)
    return None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
