"""Python functions of any length, with tests that expect what the functions give.

A function is made of steps. Each reads one list of whole numbers and makes another; `_STEPS` holds
its code beside the arithmetic that the code stands for.
"""

from collections.abc import Callable
from itertools import accumulate

import msgspec

from backends.script.chance import Chance
from backends.script.topic import Topic

TOKENS_PER_LINE = 5  # of generated code, measured

# Names that a step needs for itself: one token each.
_ITEMS = ("item", "value", "entry", "current", "element", "number", "candidate")
_RESULTS = (
    "active", "blended", "bounded", "chosen", "clean", "closed", "copied", "counted", "drawn",
    "dropped", "early", "even", "filled", "filtered", "folded", "fresh", "grouped", "joined",
    "kept", "known", "linked", "listed", "mapped", "marked", "matched", "merged", "mixed", "moved",
    "ordered", "packed", "paired", "picked", "placed", "ranked", "reduced", "scaled", "shaped",
    "stored", "trimmed", "unique", "valid", "visible", "wide",
)  # fmt: skip
_CARRIED = (
    "bound", "carry", "count", "delta", "edge", "gauge", "height", "index", "last", "margin",
    "memo", "offset", "peak", "pivot", "score", "seen", "share", "state", "tally", "total",
)  # fmt: skip


class ProgramStep(msgspec.Struct, frozen=True):
    """Describes a loop over a list; `{out}` starts empty, `{kept}` goes from value to value."""

    comments: tuple[str, ...]  # sentences to choose from; {k} and {noun}
    kept: str  # what {kept} starts as; empty where the step keeps nothing
    body: str  # of the loop
    run: Callable[[list[int], int, int], list[int]]  # values, limit, k -> result

    def template(self) -> str:
        """Return the step's lines in a function."""
        kept = f"    {{kept}} = {self.kept}\n" if self.kept else ""
        body = self.body.replace("\n", "\n        ")
        return (
            f"    # {{comment}}\n    {{out}} = []\n{kept}\n"
            f"    for {{item}} in {{source}}:\n        {body}"
        )


# Values stay below 1,009, so that what a test expects is short.
_STEPS = (
    ProgramStep(
        ("Keep only {noun} within the limit.", "Drop every {noun} that exceeds the limit."),
        "",
        "if {item} <= limit:\n    {out}.append({item})",
        lambda values, limit, _: [v for v in values if v <= limit],
    ),
    ProgramStep(
        ("Leave out each multiple of {k}.", "Multiples of {k} carry nothing new."),
        "",
        "if {item} % {k} != 0:\n    {out}.append({item})",
        lambda values, _, k: [v for v in values if v % k != 0],
    ),
    ProgramStep(
        ("Spread the {noun} values over the whole range.", "Mix: nearby values end up far apart."),
        "",
        "{out}.append(({item} * {k} + 7) % 1009)",
        lambda values, _, k: [(v * k + 7) % 1009 for v in values],
    ),
    ProgramStep(
        ("Running totals: position i holds the sum so far.", "Accumulate the {noun} values."),
        "0",
        "{kept} = ({kept} + {item}) % 1009\n{out}.append({kept})",
        lambda values, _limit, _k: [total % 1009 for total in accumulate(values)],
    ),
    ProgramStep(
        ("Outliers above {k} count as {k}.", "Cap each {noun} at {k}."),
        "",
        "if {item} > {k}:\n    {out}.append({k})\nelse:\n    {out}.append({item})",
        lambda values, _, k: [min(v, k) for v in values],
    ),
    ProgramStep(
        ("Remember the largest {noun} seen so far.", "Never fall below an earlier peak."),
        "0",
        "if {item} > {kept}:\n    {kept} = {item}\n{out}.append({kept})",
        lambda values, _limit, _k: list(accumulate(values, max)),
    ),
    ProgramStep(
        ("How often each {noun} has occurred by now.", "Count occurrences as they come."),
        "{{}}",
        "{kept}[{item}] = {kept}.get({item}, 0) + 1\n{out}.append({kept}.get({item}, 0))",
        lambda values, _limit, _k: [values[: i + 1].count(v) for i, v in enumerate(values)],
    ),
)
_STEP_TEMPLATES = tuple((step, step.template()) for step in _STEPS)
# The cases of tests, and how many values each has.
_CASES = {
    "empty_input": 0, "single_value": 1, "typical_input": 5, "few_values": 3, "zero_limit": 6,
    "large_limit": 4, "more_values": 7, "many_values": 8,
}  # fmt: skip


class Program(msgspec.Struct, frozen=True):
    """Holds a function and the steps it is made of."""

    name: str
    text: str
    steps: tuple[tuple[ProgramStep, int], ...]  # each with its constant k, in order

    def run(self, values: list[int], limit: int) -> list[int]:
        """Return what the function gives for a limit that is not negative."""
        for step, k in self.steps:
            values = step.run(values, limit, k)
        return values


def write_program(topic: Topic, chance: Chance, num_lines: int) -> Program:
    """Write a function of exactly so many lines, at least the four of its frame."""
    lines = [
        f"def {topic.function}(values: list[int], limit: int) -> list[int]:",
        "    if limit < 0:",
        '        raise ValueError("limit must not be negative")',
    ]
    num_written = len(lines) + 1  # and the last
    blocks: list[str] = []
    steps: list[tuple[ProgramStep, int]] = []
    source = "values"
    results, carried = chance.some(_RESULTS, len(_RESULTS)), chance.some(_CARRIED, len(_CARRIED))
    while True:
        step, template = chance.pick(_STEP_TEMPLATES)
        k = chance.between(2, 97)
        out = _nth(results, len(steps))
        block = template.format(
            comment=chance.pick(step.comments).format(k=k, noun=topic.noun),
            source=source,
            out=out,
            item=chance.pick(_ITEMS),
            kept=_nth(carried, len(steps)),
            k=k,
        )
        num_written += block.count("\n") + 1
        if num_written > num_lines:
            break
        num_written += 1  # an empty line between two blocks
        blocks.append(block)
        steps.append((step, k))
        source = out
    body = ["\n\n".join(blocks)] if blocks else []
    text = "\n".join([*lines, *body, f"    return {source}"])
    missing = num_lines - text.count("\n") - 1
    notes = [f"# Note {i}: one {topic.noun} at a time.\n" for i in range(1, missing + 1)]
    return Program(topic.function, "".join(notes) + text, tuple(steps))


def write_tests(program: Program, chance: Chance, number: int) -> str:
    """Write tests of a program; each expects what the program really gives."""
    tests = []
    cases = list(_CASES.items())
    for index in range(number):
        turn, which = divmod(index, len(cases))
        case, num_values = cases[which]
        values = [chance.below(300) for _ in range(num_values)]
        limit = 0 if case == "zero_limit" else chance.between(20, 400)
        tests.append(
            f"def test_{program.name}_{case}{f'_{turn + 1}' if turn else ''}() -> None:\n"
            f"    assert {program.name}({values}, {limit}) == {program.run(values, limit)}"
        )
    return "\n\n\n".join(tests)


def _nth(words: list[str], index: int) -> str:
    """Pick a word for each index, numbered once all have been used."""
    turn, which = divmod(index, len(words))
    return f"{words[which]}{turn + 1}" if turn else words[which]
