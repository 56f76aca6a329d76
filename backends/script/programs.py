"""Writes Python functions of any length, with tests that expect their real results.

A function is made of steps. Each reads one list of integers and makes another; `_STEPS` holds its
code beside the same arithmetic as a function.
"""

from collections.abc import Callable
from itertools import accumulate

import msgspec

from backends.script.chance import Chance
from backends.script.topic import Topic

TOKENS_PER_LINE = 6  # of generated code, measured

# Local names of a step; those used after it get its number.
_ITEMS = ("item", "value", "entry", "current", "element", "number", "candidate")
_RESULTS = (
    "chosen",
    "filtered",
    "joined",
    "kept",
    "mapped",
    "merged",
    "ordered",
    "scaled",
    "valid",
)
_CARRIED = ("carry", "edge", "last", "memo", "peak", "score", "seen", "state", "total")


class ProgramStep(msgspec.Struct, frozen=True):
    """Describes a loop over a list; `{kept}` is the variable carried from item to item."""

    comments: tuple[str, ...]  # sentences to choose from; {k} and {noun}
    start: str  # lines before the loop
    body: str  # lines of the loop
    run: Callable[[list[int], int, int], list[int]]  # values, limit, k -> result


# Values stay below 1,009, so that expected results are short.
_STEPS = (
    ProgramStep(
        ("Keep only {noun} within the limit.", "Drop every {noun} that exceeds the limit."),
        "",
        "        if {item} <= limit:\n            {out}.append({item})",
        lambda values, limit, _: [v for v in values if v <= limit],
    ),
    ProgramStep(
        ("Leave out each multiple of {k}.", "Multiples of {k} carry nothing new."),
        "",
        "        if {item} % {k} != 0:\n            {out}.append({item})",
        lambda values, _, k: [v for v in values if v % k != 0],
    ),
    ProgramStep(
        ("Spread the {noun} values over the whole range.", "Mix: nearby values end up far apart."),
        "",
        "        {out}.append(({item} * {k} + 7) % 1009)",
        lambda values, _, k: [(v * k + 7) % 1009 for v in values],
    ),
    ProgramStep(
        ("Running totals: position i holds the sum so far.", "Accumulate the {noun} values."),
        "    {kept} = 0\n",
        "        {kept} = ({kept} + {item}) % 1009\n        {out}.append({kept})",
        lambda values, _limit, _k: [total % 1009 for total in accumulate(values)],
    ),
    ProgramStep(
        ("Remember the largest {noun} seen so far.", "Never fall below an earlier peak."),
        "    {kept} = 0\n",
        "        if {item} > {kept}:\n            {kept} = {item}\n        {out}.append({kept})",
        lambda values, _limit, _k: list(accumulate(values, max)),
    ),
)
_BEFORE, _LOOP = "    # {comment}\n    {out} = []\n", "\n    for {item} in {source}:\n"
# The test cases, and how many values each has.
_CASES = (("empty_input", 0), ("one_value", 1), ("few_values", 3), ("zero_limit", 6), ("values", 8))


class Program(msgspec.Struct, frozen=True):
    """Is a function and the steps it is made of."""

    name: str
    text: str
    steps: tuple[tuple[ProgramStep, int], ...]  # each with its constant k, in order

    def run(self, values: list[int], limit: int) -> list[int]:
        """Returns the function's result for a limit of at least 0."""
        for step, k in self.steps:
            values = step.run(values, limit, k)
        return values


def write_program(topic: Topic, chance: Chance, num_lines: int) -> Program:
    """Writes a function of exactly so many lines, at least the four of its frame."""
    lines = [
        f"def {topic.function}(values: list[int], limit: int) -> list[int]:",
        "    if limit < 0:",
        '        raise ValueError("limit must not be negative")',
    ]
    num_written = len(lines) + 1  # the last line included
    blocks: list[str] = []
    steps: list[tuple[ProgramStep, int]] = []
    source = "values"
    while True:
        step = chance.pick(_STEPS)
        k = chance.between(2, 97)
        number = len(steps) + 1
        out = f"{chance.pick(_RESULTS)}{number}"
        block = (_BEFORE + step.start + _LOOP + step.body).format(
            comment=chance.pick(step.comments).format(k=k, noun=topic.noun),
            source=source,
            out=out,
            item=chance.pick(_ITEMS),
            kept=f"{chance.pick(_CARRIED)}{number}",
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
    """Writes tests of a program; each expects the program's real result."""
    tests = []
    for index in range(number):
        turn, which = divmod(index, len(_CASES))
        case, num_values = _CASES[which]
        values = [chance.below(300) for _ in range(num_values)]
        limit = 0 if case == "zero_limit" else chance.between(20, 400)
        tests.append(
            f"def test_{program.name}_{case}{f'_{turn + 1}' if turn else ''}() -> None:\n"
            f"    assert {program.name}({values}, {limit}) == {program.run(values, limit)}"
        )
    return "\n\n\n".join(tests)
