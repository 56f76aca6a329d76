"""Writes what the SDKs and docs/protocol.md say of the response and its `routing`: `make sdk`.

All of it comes from the Structs in gateway/wire/response_json.py and routing.py: names, types,
which fields may be left out, and the comment of each field, which says what it is.
"""

import ast
import enum
import inspect
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from gateway.messages.fields import MESSAGE_FIELDS
from gateway.wire.fields import CHAT_FIELDS, RESPONSE_FIELDS
from gateway.wire.fields import Field as RequestField
from gateway.wire.output_items import ResponseUsage
from gateway.wire.response_json import (
    IncompleteDetails,
    ReasoningEcho,
    ResponseError,
    ResponseStart,
    ResponseState,
    TextEcho,
)
from gateway.wire.routing import (
    RoutedCompaction,
    RoutedContinuation,
    RoutedDelegation,
    RoutedFailover,
    RoutedGeneration,
    RoutedVariations,
    RoutedWarmUp,
    Routing,
    Unrouted,
)

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "sdk/python/lanewise/types.py"
TYPESCRIPT = ROOT / "sdk/typescript/src/types.ts"
DOCUMENT = ROOT / "docs/protocol.md"
MESSAGES = ROOT / "docs/messages.md"
MAX_COLUMNS = 100

Kind = type[msgspec.Struct]
NAMES: dict[Kind, str] = {ResponseUsage: "Usage"}  # where the SDKs have another
RENAMED = {"class": "task_class", "text": "text_settings"}  # in Python: the names are taken
# Parts that the Python SDK hands out as dicts, as it always has.
DICTS: tuple[Kind, ...] = (
    *(ReasoningEcho, TextEcho, ResponseError, IncompleteDetails, RoutedCompaction),
    *(
        RoutedContinuation,
        RoutedDelegation,
        RoutedFailover,
        RoutedGeneration,
        RoutedVariations,
        RoutedWarmUp,
    ),
)
RESPONSE = (ResponseStart, ResponseState)


class Field(NamedTuple):
    """Is a field as the wire has it."""

    name: str
    type: Any
    says: str
    may_be_absent: bool


def fields_of(kind: Kind) -> list[Field]:
    """Returns the fields of a Struct with what their comments say.

    Raises:
        ValueError: A field has no comment.
    """
    says = comments_of(inspect.getsource(kind))
    fields = []
    for field in msgspec.structs.fields(kind):
        if not says.get(field.name):
            raise ValueError(f"{kind.__name__}.{field.name} has no comment that says what it is")
        fields.append(
            Field(field.encode_name, field.type, says[field.name], may_be_absent=not field.required)
        )
    return fields


def comments_of(source: str) -> dict[str, str]:
    """Finds each field's comment: behind it, else in the lines right above it."""
    lines = source.splitlines()
    says = {}
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            assert statement.end_lineno is not None
            behind = lines[statement.end_lineno - 1][statement.end_col_offset :].strip()
            above = statement.lineno - 1
            while lines[above - 1].lstrip().startswith("#"):
                above -= 1
            found = [behind] if behind else lines[above : statement.lineno - 1]
            said = " ".join(line.strip().lstrip("# ") for line in found)
            says[statement.target.id] = said.removesuffix(".")
    return says


def without_none(kind: Any) -> tuple[Any, bool]:
    """Returns a type without None, and whether it may be None."""
    if get_origin(kind) not in (Union, types.UnionType):
        return kind, False
    rest = [each for each in get_args(kind) if each not in (type(None), Unrouted)]
    assert len(rest) == 1
    return rest[0], type(None) in get_args(kind)


def values_of(kind: Any) -> list[str]:
    """Returns the words that a field is one of, if they are a closed set."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return [each.value for each in kind]
    return []


def element_of(kind: Any) -> Any:
    """Returns what a list holds; None of what is no list."""
    return get_args(kind)[0] if get_origin(kind) in (list, tuple) else None


def name_of(kind: Any) -> str | None:
    """Returns the SDKs' name of a Struct; None of anything else."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return NAMES.get(kind, kind.__name__)
    return None


def sentence(kind: Kind) -> str:
    """Returns the first paragraph of a Struct's docstring."""
    return inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def python_type(kind: Any, *, in_dict: bool = False) -> str:
    """Writes a type as the Python SDK has it; dicts hold no Structs."""
    kind, may_be_none = without_none(kind)
    if may_be_none:
        return f"{python_type(kind, in_dict=in_dict)} | None"
    if kind is msgspec.Raw:
        return "Any"
    if values_of(kind):
        return "str"
    if element_of(kind):
        return f"list[{python_type(element_of(kind), in_dict=in_dict)}]"
    if get_origin(kind) is dict:
        return f"dict[str, {python_type(get_args(kind)[1], in_dict=in_dict)}]"
    if in_dict and name_of(kind):
        return "dict[str, Any]"
    return name_of(kind) or kind.__name__


def python_field(field: Field) -> Iterator[str]:
    """Writes a field of a Struct; what older gateways leave out has an empty value."""
    kind, may_be_none = without_none(field.type)
    said = python_type(kind)
    name = RENAMED.get(field.name, field.name)
    if said.startswith("list["):
        default = "[]"
    elif said.startswith("dict["):
        default = "{}"
    elif may_be_none or kind in DICTS:
        said, default = f"{said} | None", "None"
    elif said == "Any":
        default = "None"
    elif name_of(kind):
        default = f"msgspec.field(default_factory={said})"
    else:
        default = {"str": '""', "int": "0", "float": "0.0", "bool": "False"}[said]
    if name != field.name:
        inner = default.removeprefix("msgspec.field(").removesuffix(")")
        inner = inner if inner != default else f"default={inner}"
        default = f'msgspec.field(name="{field.name}", {inner})'
    yield from with_comment(f"    {name}: {said} = {default}", field.says, "  # ", "    # ")


def with_comment(line: str, says: str, behind: str, above: str) -> Iterator[str]:
    """Writes a line with its comment, behind it where it fits."""
    if len(line + behind + says) > MAX_COLUMNS:
        yield above + says
        yield line
    else:
        yield line + behind + says


def python_kind(kind: Kind) -> Iterator[str]:
    """Writes a Struct or a dict of the Python SDK."""
    name, fields = name_of(kind), fields_of(kind)
    yield ""
    yield ""
    if kind not in DICTS:
        yield f"class {name}(msgspec.Struct):"
        yield f'    """{sentence(kind)}"""'
        yield ""
        for field in fields:
            yield from python_field(field)
    elif any(field.name == "from" for field in fields):  # no name in Python
        yield f"# {sentence(kind)}"
        keys = [f'"{field.name}": {python_type(field.type, in_dict=True)}' for field in fields]
        line = f'{name} = TypedDict("{name}", {{{", ".join(keys)}}}, total=False)'
        if len(line) <= MAX_COLUMNS:
            yield line
        else:
            yield from (f"{name} = TypedDict(", f'    "{name}",', "    {")
            yield from (f"        {key}," for key in keys)
            yield from ("    },", "    total=False,", ")")
    else:
        yield f"class {name}(TypedDict, total=False):"
        yield f'    """{sentence(kind)}"""'
        yield ""
        for field in fields:
            line = f"    {field.name}: {python_type(field.type, in_dict=True)}"
            yield from with_comment(line, field.says, "  # ", "    # ")


def python_text() -> str:
    """Writes the Python SDK's types."""
    lines = [
        '"""The fields of a response and of its `routing`.',
        "",
        "Generated from the Structs in gateway/wire by `make sdk`: edit those.",
        '"""',
        "",
        "from typing import Any, TypedDict",
        "",
        "import msgspec",
    ]
    for kind in parts_of(*RESPONSE):
        lines += python_kind(kind)
    lines += ["", "", "class ResponseFields(msgspec.Struct, kw_only=True):"]
    lines += ['    """A response as the gateway sends it."""', ""]
    for field in (each for kind in RESPONSE for each in fields_of(kind)):
        lines += python_field(field)
    return "\n".join(lines).replace('    id: str = ""  #', "    id: str  #") + "\n"


def typescript_type(kind: Any) -> str:
    """Writes a type as the TypeScript SDK has it."""
    kind, may_be_none = without_none(kind)
    if may_be_none:
        return f"{typescript_type(kind)} | null"
    if values_of(kind):
        return " | ".join(f'"{value}"' for value in values_of(kind))
    if element_of(kind):
        element = typescript_type(element_of(kind))
        return f"({element})[]" if " " in element else f"{element}[]"
    if get_origin(kind) is dict:
        return f"Record<string, {typescript_type(get_args(kind)[1])}>"
    plain = {str: "string", int: "number", float: "number", bool: "boolean", msgspec.Raw: "any"}
    return name_of(kind) or plain[kind]


def typescript_text() -> str:
    """Writes the TypeScript SDK's types."""
    lines = [
        "/**",
        " * The fields of a response and of its `routing`.",
        " * Generated from the Structs in gateway/wire by `make sdk`: edit those.",
        " */",
    ]
    for kind in parts_of(*RESPONSE):
        lines += typescript_interface(name_of(kind), sentence(kind), fields_of(kind))
    fields = [field for kind in RESPONSE for field in fields_of(kind)]
    lines += typescript_interface("ResponseFields", "A response as the gateway sends it.", fields)
    return "\n".join(lines) + "\n"


def typescript_interface(name: str | None, says: str, fields: list[Field]) -> Iterator[str]:
    """Writes a part as an interface."""
    yield ""
    yield f"/** {says} */"
    yield f"export interface {name} {{"
    for field in fields:
        kind = without_none(field.type)[0] if field.may_be_absent else field.type
        yield f"  /** {field.says}. */"
        yield f"  {field.name}{'?' * field.may_be_absent}: {typescript_type(kind)};"
    yield "}"


def document_type(kind: Any) -> str:
    """Writes a type in the document's words."""
    kind, may_be_none = without_none(kind)
    if may_be_none:
        return f"{document_type(kind)} or null"
    if values_of(kind):
        return ", ".join(f"`{value}`" for value in values_of(kind))
    if element_of(kind):
        element = document_type(element_of(kind))
        return "list" if element == "any" else f"list of {element}s"
    if get_origin(kind) is dict:
        return "object"
    plain = {str: "string", int: "integer", float: "number", bool: "boolean", msgspec.Raw: "any"}
    return "object" if name_of(kind) else plain[kind]


def document_rows(fields: list[Field], prefix: str = "") -> Iterator[str]:
    """Writes a row for each field, and below it those of its part; `usage` is described once."""
    for field in fields:
        name = f"{prefix}{field.name}"
        kind = without_none(field.type)[0]
        absent = "?" * field.may_be_absent
        shown = kind if field.may_be_absent else field.type
        yield f"| `{name}`{absent} | {document_type(shown)} | {field.says} |"
        part, suffix = (element_of(kind), "[]") if element_of(kind) else (kind, "")
        if name_of(part) and part is not Routing:
            yield from document_rows(fields_of(part), f"{name}{suffix}.")


def document_text(text: str) -> str:
    """Returns docs/protocol.md with its tables written anew, each between its two marks."""
    response = [field for kind in RESPONSE for field in fields_of(kind)]
    head = ["| field | type | |", "| --- | --- | --- |"]
    tables = {
        "routing": [*head, *document_rows(fields_of(Routing))],
        "response": [*head, *document_rows(response)],
        "fields of Responses": fate_rows(RESPONSE_FIELDS),
        "fields of chat completions": fate_rows(CHAT_FIELDS),
    }
    return with_tables(text, tables, DOCUMENT)


def messages_text(text: str) -> str:
    """Returns docs/messages.md with its table written anew."""
    rows = fate_rows(MESSAGE_FIELDS, "not in the newest types")
    return with_tables(text, {"fields of Messages": rows}, MESSAGES)


def with_tables(text: str, tables: dict[str, list[str]], document: Path) -> str:
    """Returns the text with each table between its two marks."""
    for name, rows in tables.items():
        start, end = f"<!-- {name}: `make sdk` writes this table -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"{document} has no table between '{start}' and '{end}'")
        table = "\n".join(rows)
        text = f"{before}{start}\n\n{table}\n\n{end}{after}"
    return text


def fate_rows(fields: Sequence[RequestField], others: str = "not OpenAI's") -> list[str]:
    """Writes a row for each field of a request: those of the SDK's types by name, then others."""
    rows = ["| field | | |", "| --- | --- | --- |"]
    for field in sorted(fields, key=lambda each: (each.is_ours, each.name)):
        ours = f" ({others})" * field.is_ours
        rows.append(f"| `{field.name}`{ours} | {field.fate} | {field.says} |")
    return rows


def parts_of(*kinds: Kind) -> list[Kind]:
    """Returns the Structs that the fields of these hold, each behind those that it holds itself."""
    found: dict[Kind, None] = {}
    for kind in kinds:
        for field in msgspec.structs.fields(kind):
            part, _ = without_none(field.type)
            part = element_of(part) or (get_args(part)[1] if get_origin(part) is dict else part)
            if name_of(part) and part not in found:
                found |= dict.fromkeys([*parts_of(part), part])
    return list(found)


def generated() -> dict[Path, str]:
    """Returns every file with what it should hold."""
    return {
        PYTHON: python_text(),
        TYPESCRIPT: typescript_text(),
        DOCUMENT: document_text(DOCUMENT.read_text()),
        MESSAGES: messages_text(MESSAGES.read_text()),
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text)
        sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
