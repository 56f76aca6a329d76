"""Decides which of the client's tools an answer calls, how often, and with what arguments.

A tool is called if the tool choice demands one, if the prompt names it ("use get_weather"), if the
prompt needs a shell and the tool is one, or if the prompt's words clearly match the tool's name and
description. Calls made and answered in this turn are not repeated unless the choice demands it. If
it demands a call, what was not called comes first, and then the tool that ends an agent's work.
"""

import re
from typing import Any

import msgspec

from backends.contract import CustomTool, DeltaKind, FunctionTool, GenerateRequest, Tool
from backends.delegation import GATEWAY_TOOLS
from backends.script.chance import Chance
from backends.script.dialogue import dialogue_answer
from backends.script.last_message import LastMessage
from backends.script.schema import instance
from backends.script.scripted_answer import AnswerItem, call_id, call_item
from backends.script.topic import FUNCTION_WORDS, fold, read_topic, word_set
from backends.script.values import Values, name_words
from backends.script.work import Work

MAX_CALLS = 16  # of one answer
MIN_DESCRIBED = 2  # telling words shared with a description, where something must be called

# Tools by which agents want the answer itself: "final_answer" (smolagents), "final_result"
# (pydantic-ai), and the name of the answer's class (LangChain).
_FINAL = re.compile(
    r"(?i)(?:final|submit|give|return|provide|structured)_?(?:answer|result|response|output)s?(?:_\w+)?"
    r"|answer|done|finish|submit|task_?(?:done|complete[d]?)|attempt_completion"
)
_CLASS_NAME = re.compile(r"(?:[A-Z][a-z0-9]+)+|response_format_\w+")

_WORD = re.compile(r"[A-Za-z]+")
_ONE_WORD = re.compile(r"[A-Z]*[^-_A-Z]*[A-Z]*")
_USING = re.compile(r"(?i)\b(?:use|call|invoke)\b")
# A word of a list after it, which may be a tool's name; then whether the list goes on.
_LISTED = re.compile(
    r"\s+(?:(?:both|first|then|the)\s+){0,3}[`\"']?([\w-]{1,128})[`\"']?(?:\s+(?:tool|function)s?\b)?"
    r"(,?\s+(?:and|then|and then|or)\b|,)?"
)
_SHELL_NAMES = word_set("exec_command shell bash run_command terminal local_shell execute")
_SHELL_PROPERTIES = frozenset(("cmd", "command", "script"))
_NOT_TELLING = FUNCTION_WORDS | word_set(
    "set run call tool function return current value if user data api new make name list string "
    "number object"
)
_RUN = re.compile(
    r"(?i)\b(?:run|execute|in (?:the|a|your) (?:shell|terminal)|shell command|command line)\b"
)
# What a shell can answer, with the command for it.
_SHELL_COMMANDS = (
    (re.compile(r"(?i)\b(?:list|show)\b.{0,80}\bfiles\b|\bwhat files\b"), "ls -la"),
    (re.compile(r"(?i)\b(?:current|working) directory\b|\bwhere are you\b"), "pwd"),
    (re.compile(r"(?i)\bgit status\b"), "git status --short"),
    (re.compile(r"(?i)\brun (?:the |all )?(?:unit )?tests\b"), "make test"),
)
_PATH = r"(?:[\w.-]{1,80}/){0,20}[\w-]{1,80}\.\w{1,5}"
_READ_FILE = re.compile(
    rf"(?i)\b(?:read|show|print|open|cat|display)\b.{{0,40}}?(?P<path>{_PATH})\b"
)
_WRITE_FILE = re.compile(
    rf"(?i)\b(?:create|write|make|add)\b.{{0,40}}?\bfile\b.{{0,30}}?(?P<path>{_PATH})\b"
    r"(?:.{0,30}?\b(?:containing|with|saying|contents?)\b[^\"'`\n]{0,40}?"
    r"(?:\"(?P<a>[^\"]*)\"|'(?P<b>[^']*)'|`(?P<c>[^`]*)`|\s(?P<d>[^\s\"'`][^\n\"'`]*)))?"
)


def tool_calls(
    request: GenerateRequest, message: LastMessage, chance: Chance, work: Work
) -> list[AnswerItem]:
    """Makes the calls of an answer; without any, the answer is text.

    Raises `TooMuchWorkError` for parameters that ask for too much.
    """
    choice = request.tool_choice
    offered = [t for t in request.tools if t.name not in GATEWAY_TOOLS]
    allowed = [t for t in offered if not choice.names or t.name in choice.names]
    if not allowed or choice.mode == "none":
        return []
    prompt, num_called = message.excerpt, message.num_calls
    must = choice.mode == "required"
    final = _final_tool(allowed) if must else None
    # Each wanted call has the number of earlier calls of its tool, and a shell's command.
    usual = [tool for tool in allowed if tool is not final]
    wanted = _wanted_calls(prompt, usual, work)[:MAX_CALLS]
    if not request.parallel_tool_calls:
        wanted = wanted[num_called : num_called + 1]
    elif num_called:
        wanted = []
    if not wanted and must:
        wanted = [(_demanded(message, allowed, final), num_called, None)]
    return [
        _call(call_id(request.id, i), message, *w, chance, work, ends=w[0] is final)
        for i, w in enumerate(wanted)
    ]


def _final_tool(tools: list[Tool]) -> Tool | None:
    """Finds the tool that takes the answer: one named so, or after a class as no other is."""
    named = [tool for tool in tools if _FINAL.fullmatch(tool.name)]
    classes = [tool for tool in tools if _CLASS_NAME.fullmatch(tool.name)]
    if named or (classes and len(classes) < len(tools)):
        return (named or classes)[-1]
    return None


def _demanded(message: LastMessage, tools: list[Tool], final: Tool | None) -> Tool:
    """Chooses what to call where nothing is left that the prompt plainly asks for."""
    left = [tool for tool in tools if tool.name not in message.called and tool is not final]
    words = _folded_words(message.excerpt)
    if final is not None and message.called:
        left = [t for t in left if _fit(words, t) or len(_described(t) & words) >= MIN_DESCRIBED]
    if not left:
        return final or tools[-1]
    closest = max(left, key=lambda tool: _fit(words, tool))
    return next(iter(_named_tools(message.excerpt, left)), closest)


def _wanted_calls(prompt: str, tools: list[Tool], work: Work) -> list[tuple[Tool, int, str | None]]:
    """Finds every call that the prompt asks for, including those already made."""
    named = _named_tools(prompt, tools)
    fitting = [] if named else _fitting(prompt, tools)
    shell = next((tool for tool in named or tools if _is_shell(tool)), None)
    commands = _commands(prompt) if shell is not None and not fitting else []
    if shell is not None and commands:
        return [(shell, turn, command) for turn, command in enumerate(commands)]
    if len(named) > 1:
        return [(tool, 0, None) for tool in named]
    if fitting and not read_topic(prompt).wants_code:
        named = fitting[:1]
    return [(tool, turn, None) for tool in named for turn in range(_num_turns(prompt, tool, work))]


def _named_tools(text: str, tools: list[Tool]) -> list[Tool]:
    found = []
    listed = _listed_words(text)
    for tool in tools:
        if tool.name not in text:
            continue  # true of nearly all: this avoids their patterns
        name = re.escape(tool.name)
        spelled = rf"(?<!\w){name}(?!\w)"
        if _ONE_WORD.fullmatch(tool.name) and tool.name not in listed:
            # If the name may be an ordinary word, the text must say that it is a tool.
            spelled = rf"(?:[`\"']{name}[`\"']|\b{name}\s+(?:tool|function)\b)"
        if match := re.search(spelled, text):
            found.append((match.start(), tool))
    return [tool for _, tool in sorted(found, key=lambda pair: pair[0])]


def _listed_words(text: str) -> set[str]:
    """Finds the words that may name tools after "use", "call" and the like: "use a, b and c"."""
    words = set()
    for using in _USING.finditer(text):
        end, goes_on = using.end(), True
        while goes_on and (listed := _LISTED.match(text, end)):
            words.add(listed[1])
            end, goes_on = listed.end(), listed[2] is not None
    return words


def _properties(tool: Tool) -> dict[str, Any]:
    properties = tool.parameters.get("properties") if isinstance(tool, FunctionTool) else None
    if not isinstance(properties, dict):
        return {}
    return {name: schema for name, schema in properties.items() if isinstance(schema, dict)}


def _is_shell(tool: Tool) -> bool:
    return tool.name in _SHELL_NAMES or not _SHELL_PROPERTIES.isdisjoint(_properties(tool))


def _commands(text: str) -> list[str]:
    plain = [command for pattern, command in _SHELL_COMMANDS if pattern.search(text)][:1]
    if _RUN.search(text):
        values = Values(text)
        if values.backticked:
            return values.backticked
        command = values.command()
        if command and not plain:
            return [command]
    if written := _WRITE_FILE.search(text):
        content = written["a"] or written["b"] or written["c"] or (written["d"] or "").strip(" .!")
        quoted = content.replace("'", "'\\''")
        return [f"printf '%s\\n' '{quoted}' > {written['path']}"]
    read = _READ_FILE.search(text)
    return plain or ([f"cat {read['path']}"] if read else [])


def _fitting(text: str, tools: list[Tool]) -> list[Tool]:
    """Finds the tools, except shells, whose words clearly match the text."""
    words = _folded_words(text)
    fits = [(tool, 2 if len(name_words(tool.name)) > 1 else 3) for tool in tools]
    return [tool for tool, least in fits if not _is_shell(tool) and _fit(words, tool) >= least]


def _folded_words(text: str) -> set[str]:
    return set(map(fold, set(_WORD.findall(text))))


def _fit(words: set[str], tool: Tool) -> int:
    """Counts the words of the tool's name (twice) and description that are among the words."""
    name = set(name_words(tool.name)) - _NOT_TELLING
    if not name & words:
        return 0  # a description alone is too long to match by chance
    return 2 * len(name & words) + len((_described(tool) - name) & words)


def _described(tool: Tool) -> set[str]:
    """Returns the telling words of a tool's description, folded."""
    described = {fold(word) for word in _WORD.findall(tool.description[:300]) if len(word) > 3}
    return described - _NOT_TELLING


def _options(tool: Tool) -> frozenset[str]:
    enums = [schema.get("enum") for schema in _properties(tool).values()]
    options = [option for enum in enums if isinstance(enum, list) for option in enum]
    return frozenset(option.lower() for option in options if isinstance(option, str))


def _num_turns(text: str, tool: Tool, work: Work) -> int:
    """Counts the calls of one tool: one per name in the text, if it takes one name at a time."""
    values = Values(text, options=_options(tool), work=work)
    taking = [
        name
        for name, schema in _properties(tool).items()
        if schema.get("type") == "string" and values.text(name) in values.names
    ]
    return len(values.names) if len(taking) == 1 else 1


def _call(
    made_id: str,
    message: LastMessage,
    tool: Tool,
    turn: int,
    command: str | None,
    chance: Chance,
    work: Work,
    *,
    ends: bool,
) -> AnswerItem:
    """Makes one call; if it `ends` an agent's work, it tells what the others gave."""
    answer = dialogue_answer(message) if ends else None
    results = message.results if ends else ()
    values = Values(message.excerpt, answer, turn, _options(tool), work, results)
    if isinstance(tool, CustomTool):
        text = command or _free_input(tool, values)
        return call_item(DeltaKind.CUSTOM_CALL, made_id, tool.name, text)
    arguments = instance(tool.parameters or {"type": "object"}, values, chance, work, "tools")
    if command is not None and isinstance(arguments, dict):
        for name, schema in _properties(tool).items():
            if name in _SHELL_PROPERTIES:
                is_list = schema.get("type") == "array"  # a shell's list of words
                arguments[name] = ["bash", "-lc", command] if is_list else command
                break
    text = msgspec.json.encode(arguments).decode()
    return call_item(DeltaKind.FUNCTION_CALL, made_id, tool.name, text, tool.namespace)


def _free_input(tool: CustomTool, values: Values) -> str:
    """Writes a free-form tool's input: a patch if it takes one, else the prompt's quoted text."""
    prompt = values.prompt.strip()
    if "patch" in tool.name or "*** Begin Patch" in tool.description:
        path = values.text("path") or "notes.txt"
        lines = (values.quoted or values.backticked or [prompt])[-1].splitlines()
        added = "\n".join(f"+{line}" for line in lines)
        return f"*** Begin Patch\n*** Add File: {path}\n{added}\n*** End Patch\n"
    return (values.backticked or values.quoted or [prompt])[0] or "-"
