"""Says in chat's terms what was found wrong with the Responses request made of a chat request."""

import re

import msgspec

from gateway.wire.errors import ProtocolError

# Responses' name of a field, and chat's. A longer name comes before its beginning.
_FIELDS = (
    ("text.format.schema", "response_format.json_schema.schema"),
    ("text.format.name", "response_format.json_schema.name"),
    ("text.format.strict", "response_format.json_schema.strict"),
    ("text.format", "response_format"),
    ("text.verbosity", "verbosity"),
    ("reasoning.effort", "reasoning_effort"),
    ("input", "messages"),
)
_TOOL_FIELD = re.compile(r"(tools\[\d+\])\.(?!type\b|function\b|custom\b)")
_ITEM = re.compile(r"input\[(\d+)\]")
# Chat has an image's URL and detail, and what a file is, in an object of their own.
_IMAGE = re.compile(r"\.(image_url|detail)$")
_FILE = re.compile(r"\.(file_data|file_url|filename)$")


class ChatTerms(msgspec.Struct, frozen=True):
    """Knows the message of each item."""

    json_paths: tuple[str, ...]
    limit_field: str  # which of chat's two names the request gave its limit

    def told(self, error: ProtocolError) -> ProtocolError:
        """Rewrites an error's field, in its message too, and returns the error."""
        if error.param is not None:
            theirs = self._renamed(error.param)
            error.message = error.message.replace(f"'{error.param}'", f"'{theirs}'")
            error.param = theirs
        return error

    def _renamed(self, param: str) -> str:
        if param == "max_output_tokens":
            return self.limit_field
        item = _ITEM.match(param)
        if item is not None and int(item[1]) < len(self.json_paths):
            return self.json_paths[int(item[1])] + _nested(param[item.end() :])
        for ours, theirs in _FIELDS:
            if param == ours or param.startswith((f"{ours}.", f"{ours}[")):
                return theirs + param.removeprefix(ours)
        return _TOOL_FIELD.sub(r"\1.function.", param)


def _nested(path: str) -> str:
    """Returns where chat has what stands at this path of an item of Responses."""
    path = _IMAGE.sub(lambda found: f".image_url.{found[1].removeprefix('image_')}", path)
    return _FILE.sub(r".file.\1", path)
