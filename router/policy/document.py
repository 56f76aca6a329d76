"""Reads a TOML or JSON document as a typed Struct and reports everything that is wrong with it.

Each `Problem` has a position, the expected and the actual value, and perhaps a suggestion. The
Struct's types are the only schema.
"""

import difflib
import enum
import json
import math
import re
import tomllib
import types
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from router.policy.positions import Path, Position, Positions, nearest, positions_of

MAX_DEPTH = 24  # of nested tables and arrays
MAX_PROBLEMS = 20  # in one error

# A line that begins with a key of too many parts: tomllib's time grows with their square.
_DEEP_KEY = re.compile(
    rf"^[ \t]*\[{{0,2}}(?:[ \t]*[\w\"'-]++[ \t]*+\.){{{MAX_DEPTH}}}", re.MULTILINE
)
_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_Document = TypeVar("_Document", bound=msgspec.Struct)


class Problem(msgspec.Struct, frozen=True):
    """Describes one error in a document and its position."""

    message: str
    path: str = ""  # rules[2].when.labels
    line: int | None = None  # both from 1
    column: int | None = None

    def text(self, name: str) -> str:
        """Returns `name:line:column: path: message`, which editors and terminals can link."""
        position = "" if self.line is None else f":{self.line}:{self.column}"
        path = f"{self.path}: " if self.path else ""
        return f"{name}{position}: {path}{self.message}"


class Fault(msgspec.Struct, frozen=True):
    """Describes an error whose position in the text is not looked up yet."""

    path: Path
    message: str
    at_key: bool = False  # point at the key and not at its value


class DocumentError(ValueError):
    """Reports every problem of a document that does not fit its type."""

    def __init__(self, problems: Iterable[Problem], name: str) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problem.text(name) for problem in self.problems))


class Document(msgspec.Struct, frozen=True):
    """Holds a well-formed document's tree and the position of every value in it."""

    name: str  # for messages: a file's name
    tree: dict[str, Any]
    positions: Positions

    def problem(self, fault: Fault) -> Problem:
        """Looks up the position of a fault."""
        position = nearest(self.positions, fault.path, key=fault.at_key) or Position(1, 1)
        return Problem(fault.message, path_text(fault.path), *position)

    def error(self, faults: Iterable[Fault]) -> DocumentError:
        """Combines faults into one error, in the order of the text."""
        problems = sorted(map(self.problem, faults), key=lambda p: (p.line or 0, p.column or 0))
        return DocumentError(problems[:MAX_PROBLEMS], self.name)

    def decode(self, kind: type[_Document]) -> _Document:
        """Converts the document to a Struct; `DocumentError` has the first `MAX_PROBLEMS`."""
        faults = list(_faults(self.tree, kind, ()))
        if faults:
            raise self.error(faults)
        try:
            return msgspec.convert(self.tree, kind)
        except msgspec.ValidationError as error:  # a check that is in no type
            message, _, where = str(error).partition(" - at `$")
            raise self.error([Fault(_path_from(where), message)]) from error


def read_document(content: bytes, name: str, max_bytes: int) -> Document:
    """Reads a document as JSON if it begins with a brace, which TOML cannot, else as TOML.

    A `DocumentError` says what is too large, not UTF-8, malformed, or too deep, and where.
    """

    def malformed(message: str, line: int | None = None, column: int | None = None) -> Exception:
        return DocumentError([Problem(message, "", line, column)], name)

    if len(content) > max_bytes:
        raise malformed(f"the document has {len(content)} bytes; at most {max_bytes} fit")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise malformed(f"not UTF-8: {error.reason}", line, column) from error
    is_json = text.lstrip()[:1] == "{"
    if not is_json and (found := _DEEP_KEY.search(text)) is not None:
        line = text.count("\n", 0, found.end()) + 1
        raise malformed(f"nested deeper than {MAX_DEPTH} tables and arrays", line, 1)
    try:
        tree = _read_json(text) if is_json else tomllib.loads(text)
        positions = positions_of(text)
    except json.JSONDecodeError as error:
        raise malformed(f"not JSON: {error.msg}", error.lineno, error.colno) from error
    except RecursionError as error:
        raise malformed(f"nested deeper than {MAX_DEPTH} tables and arrays") from error
    except ValueError as error:  # TOMLDecodeError is one; so is a number with thousands of digits
        message = str(error)
        found = _AT.search(message)
        end = text.count("\n") + 1, len(text) - text.rfind("\n")
        line, column = (int(found[1]), int(found[2])) if found and found[1] else end
        kind = "JSON" if is_json else "TOML"
        raise malformed(f"not {kind}: {_AT.sub('', message)}", line, column) from error
    document = Document(name, tree, positions)
    deep = next((path for path in positions if len(path) > MAX_DEPTH), None)
    if deep is not None:
        raise document.error([Fault(deep, f"nested deeper than {MAX_DEPTH} tables and arrays")])
    return document


def _read_json(text: str) -> dict[str, Any]:
    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(key for key, _ in pairs)
        if len(counts) < len(pairs):
            twice = next(key for key, count in counts.items() if count > 1)
            raise ValueError(f"the key {twice!r} is there twice in one object")
        return dict(pairs)

    def constant(name: str) -> float:
        raise ValueError(f"{name} is no JSON number")

    tree: dict[str, Any] = json.loads(text, object_pairs_hook=table, parse_constant=constant)
    try:
        json.dumps(tree, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text has half of a surrogate pair") from None
    return tree


def path_text(path: Path) -> str:
    """Formats a path as `rules[2].when.labels`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        plain = re.fullmatch(r"[A-Za-z0-9_-]{1,64}", step)
        name = step if plain else json.dumps(step[:64], ensure_ascii=False)
        text += f".{name}" if text else name
    return text


def _path_from(text: str) -> Path:
    """Reads a path of msgspec's, as far as it says: a map's key is `[...]` there."""
    steps = re.findall(r"\.(\w+)|\[(\d+)\]", text.partition("[...]")[0])
    return tuple(name or int(index) for name, index in steps)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Returns `; did you mean 'x'?`, or an empty text if no known word is similar."""
    near = difflib.get_close_matches(word[:64], list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _faults(value: Any, kind: Any, path: Path) -> Iterator[Fault]:
    """Finds where a tree violates a type, by walking containers and converting leaves."""
    kind, metas = _plain(kind, value)
    variants = _variants(kind)
    if variants and isinstance(value, dict):
        fault = _tag_fault(value, variants, path)
        if fault is not None:
            yield fault
            return
        kind = next(each for each in variants if _tag(each) == value[_tag_field(each)])
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    if is_struct or get_origin(kind) is dict:
        if isinstance(value, dict):
            yield from (_table_faults if is_struct else _map_faults)(value, kind, path)
        else:
            yield Fault(path, f"expected a table, got {_sort(value)}")
    elif get_origin(kind) is tuple:
        if isinstance(value, list):
            yield from _list_faults(value, kind, metas, path)
        else:
            yield Fault(path, f"expected a list, got {_sort(value)}")
    elif message := _leaf_message(value, kind):
        yield Fault(path, message)


def _plain(kind: Any, value: Any) -> tuple[Any, tuple[Meta, ...]]:
    """Removes `None` from a union, and separates a container's bounds from its type."""
    if get_origin(kind) in (types.UnionType, Union):
        options = [option for option in get_args(kind) if option is not type(None)]
        if value is not None and len(options) == 1:
            return _plain(options[0], value)
    if get_origin(kind) is Annotated:
        inner, *metas = get_args(kind)
        if get_origin(inner) in (dict, tuple):
            return inner, tuple(metas)
    return kind, ()


def _variants(kind: Any) -> tuple[type[msgspec.Struct], ...]:
    """Returns the Structs that a table may be, told apart by a tag; empty if they have none."""
    options = get_args(kind) if get_origin(kind) in (types.UnionType, Union) else (kind,)
    structs = [o for o in options if isinstance(o, type) and issubclass(o, msgspec.Struct)]
    return tuple(option for option in structs if option.__struct_config__.tag is not None)


def _tag_fault(
    value: dict[str, Any], variants: tuple[type[msgspec.Struct], ...], path: Path
) -> Fault | None:
    """Says what is wrong with the tag of a table that must be one of these Structs."""
    name = _tag_field(variants[0])
    tags = [_tag(variant) for variant in variants]
    known = ", ".join(map(repr, tags))
    if name not in value:
        message = f"the field {name!r} is missing: expected one of {known}"
        return Fault(path, message, at_key=True)
    tag = value[name]
    if tag in tags:
        return None
    hint = suggestion(tag, tags) if isinstance(tag, str) else ""
    return Fault((*path, name), f"expected one of {known}, got {_seen(tag)}{hint}")


def _tag(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag)


def _tag_field(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag_field)


def _list_faults(
    value: list[Any], kind: Any, metas: tuple[Meta, ...], path: Path
) -> Iterator[Fault]:
    for meta in metas:
        least, most = meta.min_length or 0, meta.max_length
        if len(value) < least or (most is not None and len(value) > most):
            bounds = f"{least} or more" if most is None else f"{least} to {most}"
            yield Fault(path, f"expected {bounds} entries, got {len(value)}")
    for index, entry in enumerate(value):
        yield from _faults(entry, get_args(kind)[0], (*path, index))


def _table_faults(value: dict[str, Any], kind: Any, path: Path) -> Iterator[Fault]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    tag = kind.__struct_config__.tag_field
    for key, entry in value.items():
        if key in fields:
            yield from _faults(entry, fields[key].type, (*path, key))
        elif key != tag:  # the tag is no field; it has chosen the Struct
            known = f"known here: {', '.join(filter(None, (tag, *fields)))}"
            meant = suggestion(key, fields)
            message = f"unknown field {key[:64]!r}{meant}{' ' if meant else '; '}{known}"
            yield Fault((*path, key), message, at_key=True)
    for name, field in fields.items():
        if field.required and name not in value:
            yield Fault(path, f"the field {name!r} is missing", at_key=True)


def _map_faults(value: dict[str, Any], kind: Any, path: Path) -> Iterator[Fault]:
    key_kind, entry_kind = get_args(kind)
    for key, entry in value.items():
        if message := _leaf_message(key, key_kind):
            yield Fault((*path, key), message, at_key=True)
        yield from _faults(entry, entry_kind, (*path, key))


def _leaf_message(value: Any, kind: Any) -> str:
    """Says why a value does not fit a type; empty if it does."""
    if isinstance(value, float) and not math.isfinite(value):  # JSON, which others read, has none
        return f"expected a finite number, got {value}"
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        choices = _choices(kind)
        if choices and isinstance(value, str):
            known = ", ".join(map(repr, choices))
            instead = dict(_extra(kind, "removed")).get(value)
            hint = f"; it was removed: use {instead!r}" if instead else suggestion(value, choices)
            return f"expected one of {known}, got {_seen(value)}{hint}"
        if described := _description(kind):
            return f"expected {described}, got {_seen(value)}"
        is_hidden = isinstance(value, str) and _extra(kind, "secret")
        seen = f"{len(value)} characters" if is_hidden else _seen(value)
        words = re.sub(r", got `\w+`$", "", str(error))
        words = re.sub(r"`(\w+)`", lambda match: _WORDS.get(match[1], match[0]), words)
        return f"{words[0].lower()}{words[1:]}, got {seen}"
    return ""


_WORDS = {
    "str": "text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
}


def _description(kind: Any) -> str:
    """Returns the first description among a type's `Meta`s, or an empty text."""
    if get_origin(kind) in (types.UnionType, Union):
        return next(filter(None, map(_description, get_args(kind))), "")
    metas = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    return next((m.description for m in metas if isinstance(m, Meta) and m.description), "")


def _choices(kind: Any) -> tuple[str, ...]:
    """Returns the texts that an enumeration, a literal or a `Meta` allows."""
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        return tuple(member.value for member in kind)
    if get_origin(kind) is Literal:
        return tuple(get_args(kind))
    return tuple(_extra(kind, "choices"))


def _extra(kind: Any, key: str) -> Any:
    """Returns what the first `Meta` that has this key says; empty if none has it."""
    extras = (meta.extra or {} for meta in getattr(kind, "__metadata__", ()))
    return next((extra[key] for extra in extras if key in extra), ())


def _sort(value: Any) -> str:
    """Says what stands where a table or a list should: a text may be a key, so it is not quoted."""
    return "a text" if isinstance(value, str) else _seen(value)


def _seen(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
