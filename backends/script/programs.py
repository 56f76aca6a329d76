"""Programs of any length in the language asked for, with tests that expect what they give."""

from collections.abc import Sequence

import msgspec

from backends.script.chance import Chance
from backends.script.stages import STAGES, Names, Stage, render
from backends.script.syntax import Syntax
from backends.script.topic import Topic

_ADJECTIVES = (
    "active", "early", "final", "inner", "known", "large", "local", "main", "next", "older", "open",
    "outer", "pending", "plain", "prior", "ready", "recent", "shared", "small", "sorted", "stable",
    "valid", "visible", "wide",
)  # fmt: skip
_ITEMS = ("item", "value", "entry", "current", "element", "number", "candidate")
_KEPT = ("state", "seen", "memo", "tracker", "ledger", "level", "mark")
# For the steps of a long function, each of which needs names of its own: one token each.
_RESULTS = (
    "active", "ahead", "balanced", "blended", "bounded", "chosen", "clean", "closed",
    "copied", "counted", "drawn", "dropped", "early", "even", "filled", "filtered",
    "fitted", "folded", "fresh", "grouped", "joined", "kept", "known", "large", "leading",
    "level", "linked", "listed", "local", "mapped", "marked", "matched", "merged", "mixed", "moved",
    "named", "ordered", "packed", "paired", "passed", "picked", "placed", "plain", "pruned",
    "queued", "raised", "ranked", "reduced", "scaled", "scored", "shaped", "shifted", "smooth",
    "solid", "spaced", "staged", "stored", "trimmed", "unique", "usable", "valid", "visible",
    "weighed", "wide",
)  # fmt: skip
_CARRIED = (
    "bound", "carry", "count", "delta", "edge", "flag", "gauge", "height", "index", "last",
    "ledger", "margin", "mark", "memo", "offset", "peak", "pivot", "prior", "rate", "score",
    "seen", "share", "spread", "state", "tally", "total", "tracker", "weight",
)  # fmt: skip
_CASES = (
    "empty_input", "single_value", "typical_input", "repeated_values", "large_limit", "zero_limit",
    "ascending_input", "descending_input", "all_equal", "many_values",
)  # fmt: skip

CHARS_PER_TOKEN = 4  # of generated code, measured; sizes are aimed at, not hit


class Function(msgspec.Struct, frozen=True):
    """A generated function."""

    name: str
    lines: tuple[str, ...]
    steps: tuple[tuple[Stage, int], ...]  # stage and constant, in order

    def run(self, values: list[int], limit: int) -> list[int]:
        """What the function gives for a limit that is not negative."""
        for stage, k in self.steps:
            values = stage.run(values, limit, k)
        return values


class Program(msgspec.Struct, frozen=True):
    """A file's worth of code."""

    functions: tuple[Function, ...]  # the last one is what was asked for
    text: str


def identifier(parts: tuple[str, ...], syntax: Syntax) -> str:
    """Words as a name in a language's style."""
    if syntax.camel:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    return "_".join(parts)


def write_program(topic: Topic, syntax: Syntax, chance: Chance, num_tokens: int) -> Program:
    """A program of about so many tokens: helper functions and one that calls them in turn."""
    taken = {identifier(topic.name, syntax)}
    helpers: list[Function] = []
    num_chars = 400  # what the main function takes, about
    while num_chars < num_tokens * CHARS_PER_TOKEN:
        helpers.append(_helper(topic, syntax, chance, taken))
        num_chars += sum(map(len, helpers[-1].lines)) + len(helpers[-1].lines)
    if helpers:
        main = _calling_function(topic, syntax, chance, helpers)
    else:
        main = _staged_function(topic.name, topic, syntax, chance, chance.between(1, 2))
    functions = (*helpers, main)
    return Program(functions, _assemble(functions, syntax))


def write_long_function(topic: Topic, syntax: Syntax, chance: Chance, num_lines: int) -> Program:
    """A single function of exactly so many lines, if the language's frame leaves room for it."""
    name = identifier(topic.name, syntax)
    frame = len(_file((), syntax)) + len(_framed(name, _guard(syntax), "values", syntax))
    body: list[str] = []
    steps: list[tuple[Stage, int]] = []
    source = "values"
    results, carried = (chance.some(words, len(words)) for words in (_RESULTS, _CARRIED))
    while True:
        out, extra = _nth(results, len(steps)), _nth(carried, len(steps))
        names = Names(source, out, chance.pick(_ITEMS), extra)
        block, step = _stage_lines(topic, syntax, chance, names)
        block.insert(_loop_at(step[0]), "")
        if frame + len(body) + len(block) > num_lines:
            break
        body += [*block, ""]
        steps.append(step)
        source = names.out
    if body:
        body.pop()
    lines = _framed(name, [*_guard(syntax), *body], source, syntax)
    function = Function(name, tuple(lines), tuple(steps))
    text_lines = _file((function,), syntax)
    missing = num_lines - len(text_lines)
    if missing > 0:
        notes = [f"{syntax.comment} {note}" for note in _notes(topic, chance, missing)]
        text_lines = notes + text_lines
    return Program((function,), "\n".join(text_lines))


def write_tests(program: Program, syntax: Syntax, chance: Chance, number: int) -> str:
    """Tests of the program's main function; each expects what the program really gives."""
    main = program.functions[-1]
    lines: list[str] = []
    for index in range(number):
        case = _CASES[index % len(_CASES)]
        if index >= len(_CASES):
            case = f"{case}_{index // len(_CASES) + 1}"
        values = _case_values(case, chance)
        limit = 0 if case.startswith("zero_limit") else chance.between(20, 400)
        expected = ", ".join(map(str, main.run(values, limit)))
        check = syntax.check.format(
            name=main.name,
            given=syntax.given.format(values=", ".join(map(str, values))),
            limit=limit,
            expected=syntax.expected.format(values=expected),
        )
        lines += [syntax.test_open.format(name=main.name, case=case), syntax.indent + check]
        lines += [syntax.test_end.format()] if syntax.test_end else []
        lines += ["", ""] if syntax.label == "python" else [""]
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(lines)


def _case_values(case: str, chance: Chance) -> list[int]:
    if case.startswith("empty"):
        return []
    number = 1 if case.startswith("single") else chance.between(4, 8)
    if case.startswith("all_equal"):
        return [chance.between(1, 99)] * number
    values = [chance.below(300) for _ in range(number)]
    if case.startswith("repeated"):
        return values + values[:2]
    if case.startswith("ascending"):
        return sorted(values)
    return sorted(values, reverse=True) if case.startswith("descending") else values


def _helper(topic: Topic, syntax: Syntax, chance: Chance, taken: set[str]) -> Function:
    function = _staged_function(("helper",), topic, syntax, chance, chance.between(1, 3))
    verb = chance.pick(function.steps[-1][0].verbs)
    parts = (verb, chance.pick(_ADJECTIVES), _letters(topic.noun))
    name = identifier(parts, syntax)
    if name in taken:
        name = identifier((*parts, str(len(taken))), syntax)
    taken.add(name)
    header = syntax.function.format(name=name)
    return Function(name, (header, *function.lines[1:]), function.steps)


def _staged_function(
    parts: tuple[str, ...],
    topic: Topic,
    syntax: Syntax,
    chance: Chance,
    num_stages: int,
) -> Function:
    body: list[str] = _guard(syntax) if chance.often(60) else []
    steps: list[tuple[Stage, int]] = []
    source = "values"
    for index in range(num_stages):
        names = _worded_names(topic, syntax, chance, source, index)
        block, step = _stage_lines(topic, syntax, chance, names)
        body += block
        steps.append(step)
        source = names.out
    name = identifier(parts, syntax)
    return Function(name, tuple(_framed(name, body, source, syntax)), tuple(steps))


def _calling_function(
    topic: Topic, syntax: Syntax, chance: Chance, helpers: list[Function]
) -> Function:
    """The function that was asked for: it calls a few of its helpers, one after the other."""
    called = helpers[-6:]
    body = _guard(syntax)
    source = "values"
    steps: list[tuple[Stage, int]] = []
    for index, helper in enumerate(called):
        out = identifier((chance.pick(_ADJECTIVES), _letters(topic.noun), str(index + 1)), syntax)
        body += [line.format(out=out, name=helper.name, value=source) for line in syntax.call]
        source = out
        steps += helper.steps
    name = identifier(topic.name, syntax)
    return Function(name, tuple(_framed(name, body, source, syntax)), tuple(steps))


def _stage_lines(
    topic: Topic, syntax: Syntax, chance: Chance, names: Names
) -> tuple[list[str], tuple[Stage, int]]:
    """A comment and a stage under it; and the stage with its constant."""
    stage = chance.pick(STAGES)
    k = chance.between(2, 97)
    comment = chance.pick(stage.comments).format(k=k, noun=topic.noun)
    return [f"{syntax.comment} {comment}", *render(stage, syntax, names, k)], (stage, k)


def _loop_at(stage: Stage) -> int:
    """Where the loop begins among a stage's lines, its comment included."""
    return 1 + next(at for at, line in enumerate(stage.body) if line.startswith("each "))


def _worded_names(topic: Topic, syntax: Syntax, chance: Chance, source: str, index: int) -> Names:
    """Names for one of a few stages."""
    suffix = () if index == 0 else (str(index + 1),)
    return Names(
        source,
        identifier((chance.pick(_ADJECTIVES), _letters(topic.noun), *suffix), syntax),
        chance.pick(_ITEMS),
        identifier((chance.pick(_KEPT), *suffix), syntax),
    )


def _nth(words: Sequence[str], index: int) -> str:
    """A word for each index, numbered once they have all been used."""
    turn, place = divmod(index, len(words))
    return f"{words[place]}{turn + 1}" if turn else words[place]


def _guard(syntax: Syntax) -> list[str]:
    lines = [
        syntax.when.format(condition="limit < 0"),
        syntax.indent + syntax.fail.format(message="limit must not be negative"),
    ]
    return [*lines, "}"] if syntax.end else lines


def _framed(name: str, body: list[str], result: str, syntax: Syntax) -> list[str]:
    lines = [syntax.function.format(name=name)]
    lines += [syntax.indent + line if line else "" for line in body]
    lines.append(syntax.indent + syntax.give_back.format(value=result))
    return [*lines, "}"] if syntax.end else lines


def _file(functions: tuple[Function, ...], syntax: Syntax) -> list[str]:
    lines = list(syntax.header)
    gap = ["", ""] if syntax.label == "python" else [""]
    prefix = syntax.indent * syntax.depth
    for index, function in enumerate(functions):
        lines += gap if index else []
        lines += [prefix + line if line else "" for line in function.lines]
    return [*lines, *syntax.footer]


def _assemble(functions: tuple[Function, ...], syntax: Syntax) -> str:
    return "\n".join(_file(functions, syntax))


def _notes(topic: Topic, chance: Chance, number: int) -> list[str]:
    openings = ("Note", "Input", "Output", "Cost", "Memory", "Errors", "Order", "Limits")
    return [
        f"{openings[i % len(openings)]}: {chance.pick(_ADJECTIVES)} {topic.noun} first."
        for i in range(number)
    ]


def _letters(word: str) -> str:
    """A word as part of an identifier."""
    return "".join(char for char in word if "a" <= char <= "z") or "value"
