"""Which of the client's tools an answer calls, how often, and with what.

A tool is called when the choice demands one, when the ask names one ("use get_weather"), when it
asks for something shell-like and there is a shell-like tool, or when its words match a tool's name
and description plainly. Calls that were made and answered in this turn are not made again unless
the choice demands a call once more.
"""

import re

import msgspec

from backends.contract import CustomTool, DeltaKind, FunctionTool, GenerateRequest, Tool
from backends.delegation import DELEGATE_TOOL
from backends.script.ask import Ask
from backends.script.chance import Chance
from backends.script.playback import AnswerItem, call_id, call_item
from backends.script.schema import instance
from backends.script.topic import read_topic
from backends.script.values import Values
from backends.script.words import fold, word_set

MAX_CALLS = 16  # of one answer

_WORD = re.compile(r"[A-Za-z]+")
_SHELL_NAMES = word_set("exec_command shell bash run_command terminal local_shell execute")
_SHELL_PROPERTIES = frozenset(("cmd", "command", "script"))
_NOT_TELLING = word_set(
    "a an the of for to in on at and or by with from get set run call use tool function returns "
    "return given current value this that it is are be as if user data api new make do name "
    "list your you my me what how please can string number object"
)
_RUN = re.compile(
    r"\b(?:run|execute|in (?:the|a|your) (?:shell|terminal)|shell command|command line)\b", re.I
)
# Plain asks that a shell answers, with the command for them.
_SHELL_ASKS = (
    (re.compile(r"\b(?:list|show)\b.{0,80}\bfiles\b|\bwhat files\b", re.IGNORECASE), "ls -la"),
    (re.compile(r"\b(?:current|working) directory\b|\bwhere are you\b", re.IGNORECASE), "pwd"),
    (re.compile(r"\bgit status\b", re.IGNORECASE), "git status --short"),
    (re.compile(r"\brun (?:the |all )?(?:unit )?tests\b", re.IGNORECASE), "make test"),
)
_PATH = r"(?:[\w.-]{1,80}/){0,20}[\w-]{1,80}\.\w{1,5}"
_READ_FILE = re.compile(
    rf"\b(?:read|show|print|open|cat|display)\b.{{0,40}}?(?P<path>{_PATH})\b",
    re.IGNORECASE,
)
_WRITE_FILE = re.compile(
    rf"\b(?:create|write|make|add)\b.{{0,40}}?\bfile\b.{{0,30}}?(?P<path>{_PATH})\b"
    r"(?:.{0,30}?\b(?:containing|with|saying|contents?)\b[^\"'`\n]{0,40}?"
    r"(?:\"(?P<a>[^\"]*)\"|'(?P<b>[^']*)'|`(?P<c>[^`]*)`|\s(?P<d>[^\s\"'`][^\n\"'`]*)))?",
    re.IGNORECASE,
)


class _Wanted(msgspec.Struct, frozen=True):
    """A call to make; `turn` counts calls of the same tool, `command` is for shell-like ones."""

    tool: Tool
    turn: int = 0
    command: str | None = None


def tool_calls(request: GenerateRequest, ask: Ask, chance: Chance) -> list[AnswerItem]:
    """The calls an answer makes; none means it is given in words."""
    choice = request.tool_choice
    if choice.mode == "none" or not request.tools:
        return []
    offered = [t for t in request.tools if t.name != DELEGATE_TOOL]
    allowed = [t for t in offered if not choice.names or t.name in choice.names]
    if not allowed:
        return []
    wanted = _wanted_calls(ask, allowed)[:MAX_CALLS]
    if not request.parallel_tool_calls:
        wanted = wanted[ask.num_calls : ask.num_calls + 1]
    elif ask.num_calls:
        wanted = []
    if not wanted and choice.mode == "required":
        wanted = [_Wanted(_closest(ask.gist, allowed), ask.num_calls)]
    return [_call(request, ask, index, call, chance) for index, call in enumerate(wanted)]


def _wanted_calls(ask: Ask, tools: list[Tool]) -> list[_Wanted]:
    """Every call the ask wants, whether made already or not."""
    named = _named_tools(ask.gist, tools)
    shell = next((tool for tool in named or tools if _is_shell(tool)), None)
    fitting = [] if named else _fitting(ask.gist, tools)
    if shell is not None and not fitting:
        commands = _commands(ask.gist)
        if commands:
            return [_Wanted(shell, i, command) for i, command in enumerate(commands)]
    if not named:
        named = fitting[:1] if not _is_about_code(ask.gist) else []
    return [
        _Wanted(tool, turn)
        for tool in named
        for turn in range(_num_turns(ask.gist, tool) if len(named) == 1 else 1)
    ]


def _named_tools(text: str, tools: list[Tool]) -> list[Tool]:
    """Tools whose names the ask spells out, in its order."""
    found = []
    for tool in tools:
        if tool.name not in text:
            continue  # nearly all: spares their patterns
        spelled = re.escape(tool.name)
        if "_" not in tool.name and "-" not in tool.name and not _CAMEL.search(tool.name):
            # A one-word name may be an ordinary word: then the ask must say that it is a tool.
            spelled = (
                rf"(?:\b(?:use|call|invoke)\s+(?:the\s+)?[`\"']?{spelled}\b"
                rf"|[`\"']{spelled}[`\"']|\b{spelled}\s+(?:tool|function)\b)"
            )
        else:
            spelled = rf"(?<!\w){spelled}(?!\w)"
        match = re.search(spelled, text)
        if match:
            found.append((match.start(), tool))
    return [tool for _, tool in sorted(found, key=lambda pair: pair[0])]


_CAMEL = re.compile(r"[a-z][A-Z]")


def _is_shell(tool: Tool) -> bool:
    if isinstance(tool, CustomTool):
        return tool.name in _SHELL_NAMES
    properties = tool.parameters.get("properties")
    shelly = isinstance(properties, dict) and bool(_SHELL_PROPERTIES & set(properties))
    return tool.name in _SHELL_NAMES or shelly


def _commands(text: str) -> list[str]:
    """The shell commands an ask wants run."""
    values = Values(text)
    if _RUN.search(text):
        if values.backticked:
            return list(values.backticked)
        command = values.command()
        if command and not any(pattern.search(text) for pattern, _ in _SHELL_ASKS):
            return [command]
    written = _WRITE_FILE.search(text)
    if written:
        content = written["a"] or written["b"] or written["c"] or (written["d"] or "").strip(" .!")
        return [f"printf '%s\\n' {_shell_quoted(content)} > {written['path']}"]
    for pattern, command in _SHELL_ASKS:
        if pattern.search(text):
            return [command]
    read = _READ_FILE.search(text)
    return [f"cat {read['path']}"] if read else []


def _shell_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _is_about_code(text: str) -> bool:
    """Whether the ask wants code written rather than something looked up."""
    return read_topic(text).wants_code


def _fitting(text: str, tools: list[Tool]) -> list[Tool]:
    """Tools the ask plainly is for, shells aside; a one-word name may be an ordinary word."""
    words = _folded_words(text)
    return [
        tool
        for tool in tools
        if not _is_shell(tool) and _fit(words, tool) >= (2 if len(_name_words(tool)) > 1 else 3)
    ]


def _folded_words(text: str) -> set[str]:
    return {fold(word) for word in set(_WORD.findall(text))}


def _fit(words: set[str], tool: Tool) -> int:
    """How many telling words of the tool's name, doubled, and description are among the ask's."""
    name = {fold(word) for word in _name_words(tool)} - _NOT_TELLING
    if not name & words:
        return 0  # a description alone is too long to match by chance
    described = {fold(word) for word in _WORD.findall(tool.description[:300]) if len(word) > 3}
    described -= _NOT_TELLING | name
    return 2 * len(name & words) + len(described & words)


def _name_words(tool: Tool) -> list[str]:
    return _WORD.findall(re.sub(r"([a-z])([A-Z])", r"\1 \2", tool.name))


def _options(tool: Tool) -> frozenset[str]:
    """What the tool's properties let choose among, in lower case."""
    properties = tool.parameters.get("properties") if isinstance(tool, FunctionTool) else None
    places = properties.values() if isinstance(properties, dict) else ()
    lists = [place.get("enum") for place in places if isinstance(place, dict)]
    return frozenset(
        option.lower()
        for options in lists
        if isinstance(options, list)
        for option in options
        if isinstance(option, str)
    )


def _closest(text: str, tools: list[Tool]) -> Tool:
    named = _named_tools(text, tools)
    words = _folded_words(text)
    return named[0] if named else max(tools, key=lambda tool: _fit(words, tool))


def _num_turns(text: str, tool: Tool) -> int:
    """How often one tool is called: once for each name, if it takes one name at a time."""
    if isinstance(tool, CustomTool):
        return 1
    values = Values(text, options=_options(tool))
    properties = tool.parameters.get("properties")
    if not isinstance(properties, dict) or len(values.names) < 2:
        return 1
    taking = [
        name
        for name, schema in properties.items()
        if isinstance(schema, dict)
        and schema.get("type") == "string"
        and values.text(name) in values.names
    ]
    return len(values.names) if len(taking) == 1 else 1


def _call(
    request: GenerateRequest, ask: Ask, index: int, wanted: _Wanted, chance: Chance
) -> AnswerItem:
    tool = wanted.tool
    made = call_id(request.id, index)
    values = Values(ask.gist, turn=wanted.turn, options=_options(tool))
    if isinstance(tool, CustomTool):
        text = wanted.command or _free_input(tool, values)
        return call_item(DeltaKind.CUSTOM_CALL, made, tool.name, text)
    arguments = instance(tool.parameters or {"type": "object"}, values, chance)
    if wanted.command is not None and isinstance(arguments, dict):
        _put_command(arguments, tool, wanted.command)
    text = msgspec.json.encode(arguments).decode()
    return call_item(DeltaKind.FUNCTION_CALL, made, tool.name, text, tool.namespace)


def _put_command(arguments: dict[str, object], tool: FunctionTool, command: str) -> None:
    """Put a shell command where the tool takes it: as text, or as a list of words for a shell."""
    for name, schema in tool.parameters.get("properties", {}).items():
        if name in _SHELL_PROPERTIES and isinstance(schema, dict):
            is_list = schema.get("type") == "array"
            arguments[name] = ["bash", "-lc", command] if is_list else command
            return


def _free_input(tool: CustomTool, values: Values) -> str:
    """Text for a free-form tool: a patch where it takes patches, else what the ask quotes."""
    takes_patches = "patch" in tool.name or "*** Begin Patch" in tool.description
    if takes_patches:
        path = values.text("path") or "notes.txt"
        lines = (values.quoted or values.backticked or [values.ask.strip()])[-1].splitlines()
        added = "\n".join(f"+{line}" for line in lines)
        return f"*** Begin Patch\n*** Add File: {path}\n{added}\n*** End Patch\n"
    found = values.backticked or values.quoted or [values.ask.strip()]
    return found[0] or "-"
