"""Steps that generated functions are made of, each with the arithmetic it stands for.

A stage reads one list of whole numbers and makes another, in any `Syntax`. It can also be run, so
the tests that a generated program brings along expect what the program really gives. Numbers stay
non-negative and below `MODULUS`, so that every language computes the same.
"""

from collections.abc import Callable
from functools import lru_cache

import msgspec

from backends.script.syntax import SYNTAXES, Syntax

MODULUS = 1_009


class Names(msgspec.Struct, frozen=True):
    """Variables of one stage."""

    source: str
    out: str
    item: str
    extra: str  # a number or map the stage keeps while it runs


class Stage(msgspec.Struct, frozen=True):
    """One step of a function."""

    comments: tuple[str, ...]  # sentences to choose from; {k} and {noun}
    verbs: tuple[str, ...]  # for the names of functions that do only this
    body: tuple[str, ...]  # lines in the notation of `render`
    run: Callable[[list[int], int, int], list[int]]  # values, limit, k -> result


def render(stage: Stage, syntax: Syntax, names: Names, k: int) -> list[str]:
    """A stage's lines, indented from 0.

    Body lines are `verb argument ...`. A verb names a line of the syntax; `<` closes a block. In
    arguments V, O, I, X and K stand for source, out, item, extra and the constant, `~` for a
    space.
    """
    text = _template(stage.body, syntax.label)
    values = (names.source, names.out, names.item, names.extra, str(k))
    for placeholder, value in zip(_PLACEHOLDERS.values(), values, strict=True):
        text = text.replace(placeholder, value)
    return text.split("\n")


# What stands for V, O, I, X and K in a template: characters that no program contains.
_PLACEHOLDERS = dict(zip("VOIXK", "\x01\x02\x03\x04\x05", strict=True))


@lru_cache(maxsize=256)  # every stage in every language: below a hundred
def _template(body: tuple[str, ...], label: str) -> str:
    syntax = SYNTAXES[label]
    lines: list[str] = []
    depth = 0
    for line in body:
        verb, *arguments = line.split(" ")
        if verb == "<":
            depth -= 1
            if syntax.end:
                lines.append(syntax.indent * depth + "}")
        elif verb == "otherwise":
            lines.append(syntax.indent * (depth - 1) + syntax.otherwise.format())
        else:
            text = _line(verb, [_expression(a, syntax) for a in arguments], syntax)
            lines.append(syntax.indent * depth + text)
            depth += verb in ("each", "when")
    return "\n".join(lines)


def _expression(argument: str, syntax: Syntax) -> str:
    """An argument with its letters replaced; `X[I]` is a map's value, zero where it has none."""
    found = syntax.get_or_zero.format(name=_PLACEHOLDERS["X"], key=_PLACEHOLDERS["I"])
    parts = argument.split("X[I]")
    plain = ["".join(_PLACEHOLDERS.get(char, char) for char in part) for part in parts]
    return found.join(plain).replace("~", " ")


def _line(verb: str, arguments: list[str], syntax: Syntax) -> str:
    match verb, arguments:
        case "each", [item, name]:
            return syntax.each.format(item=item, name=name)
        case "when", [condition]:
            return syntax.when.format(condition=condition)
        case "push", [name, value]:
            return syntax.push.format(name=name, value=value)
        case "put", [name, key, value]:
            return syntax.put.format(name=name, key=key, value=value)
        case "let", [name, value]:
            return syntax.let.format(name=name, value=value)
        case "set", [name, value]:
            return syntax.set.format(name=name, value=value)
        case "list", [name]:
            return syntax.new_list.format(name=name)
        case "map", [name]:
            return syntax.new_map.format(name=name)
    raise AssertionError(f"no such line: {verb} {arguments}")


def _distinct(values: list[int], _limit: int, _k: int) -> list[int]:
    return list(dict.fromkeys(values))


def _totals(values: list[int], _limit: int, _k: int) -> list[int]:
    total, out = 0, []
    for value in values:
        total = (total + value) % MODULUS
        out.append(total)
    return out


def _differences(values: list[int], _limit: int, _k: int) -> list[int]:
    return [abs(b - a) for a, b in zip([0, *values], values, strict=False)]


def _peaks(values: list[int], _limit: int, _k: int) -> list[int]:
    return [max(values[: i + 1]) for i in range(len(values))]


def _occurrences(values: list[int], _limit: int, _k: int) -> list[int]:
    return [values[: i + 1].count(value) for i, value in enumerate(values)]


def _after(values: list[int], _limit: int, k: int) -> list[int]:
    started, out = 0, []
    for value in values:
        if value > k:
            started = 1
        if started == 1:
            out.append(value)
    return out


STAGES = (
    Stage(
        ("Keep only {noun} within the limit.", "Drop every {noun} that exceeds the limit."),
        ("select", "restrict"),
        ("list O", "each I V", "when I~<=~limit", "push O I", "<", "<"),
        lambda values, limit, _: [v for v in values if v <= limit],
    ),
    Stage(
        ("Leave out each multiple of {k}.", "Multiples of {k} carry nothing new."),
        ("thin", "sieve"),
        ("list O", "each I V", "when I~%~K~!=~0", "push O I", "<", "<"),
        lambda values, _, k: [v for v in values if v % k != 0],
    ),
    Stage(
        ("Spread the {noun} values over the whole range.", "Mix: nearby values end up far apart."),
        ("scale", "spread"),
        ("list O", "each I V", f"push O (I~*~K~+~7)~%~{MODULUS}", "<"),
        lambda values, _, k: [(v * k + 7) % MODULUS for v in values],
    ),
    Stage(
        ("Each {noun} counts once.", "Remove duplicates but keep the order."),
        ("dedupe", "unique"),
        ("list O", "map X", "each I V", "when X[I]~==~0", "put X I 1", "push O I", "<", "<"),
        _distinct,
    ),
    Stage(
        ("Running totals: position i holds the sum so far.", "Accumulate the {noun} values."),
        ("accumulate", "total"),
        ("list O", "let X 0", "each I V", f"set X (X~+~I)~%~{MODULUS}", "push O X", "<"),
        _totals,
    ),
    Stage(
        ("Outliers above {k} count as {k}.", "Cap each {noun} at {k}."),
        ("cap", "clamp"),
        ("list O", "each I V", "when I~>~K", "push O K", "otherwise", "push O I", "<", "<"),
        lambda values, _, k: [min(v, k) for v in values],
    ),
    Stage(
        ("Distance of each {noun} from the one before.", "What matters is the change."),
        ("differences", "compare"),
        (
            "list O",
            "let X 0",
            "each I V",
            "when I~>=~X",
            "push O I~-~X",
            "otherwise",
            "push O X~-~I",
            "<",
            "set X I",
            "<",
        ),
        _differences,
    ),
    Stage(
        ("Remember the largest {noun} seen so far.", "Never fall below an earlier peak."),
        ("peaks", "envelope"),
        ("list O", "let X 0", "each I V", "when I~>~X", "set X I", "<", "push O X", "<"),
        _peaks,
    ),
    Stage(
        ("How often each {noun} has occurred by now.", "Count occurrences as they come."),
        ("count", "tally"),
        ("list O", "map X", "each I V", "put X I X[I]~+~1", "push O X[I]", "<"),
        _occurrences,
    ),
    Stage(
        ("Weight each {noun} by its position.", "Later values weigh more."),
        ("weight", "rank"),
        ("list O", "let X 0", "each I V", f"push O (I~+~X)~%~{MODULUS}", "set X X~+~K", "<"),
        lambda values, _, k: [(v + i * k) % MODULUS for i, v in enumerate(values)],
    ),
    Stage(
        ("Skip the warm-up: start at the first {noun} above {k}.", "Ignore leading noise."),
        ("trim", "skip"),
        (
            "list O",
            "let X 0",
            "each I V",
            "when I~>~K",
            "set X 1",
            "<",
            "when X~==~1",
            "push O I",
            "<",
            "<",
        ),
        _after,
    ),
)
