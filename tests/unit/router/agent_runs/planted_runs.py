"""Draws agents' runs from a seed: clean ones, and ones that get stuck at a known call.

All of it is made up here; no recorded run is in it. The tools speak as five agents' tools do: with
an exit code in a heading, in JSON, behind the text, marked as an error, or with words alone.
"""

import json
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from backends.contract import ContextItem, FunctionCall, FunctionCallOutput, Message, Role, TextPart
from backends.prompt import measure

FILES = ("src/store.py", "src/lock.rs", "web/cart.ts", "pkg/queue.go", "lib/parser.rb")
NAMES = ("order", "retry", "checksum", "timeout", "merge", "rounding")
ASKS = (
    "Add a flag that prints the version and exits.",
    "The cart counts one item twice; make it count once.",
    "Rename the helper and update its callers.",
    "Return an empty list instead of null from the queue.",
    "Write the missing test for the parser.",
)
GOING_ON = ("Thanks. Now add a line to the changelog.", "Good, commit it.", "Great, what changed?")
COMPLAINTS = (
    "That did not work, the test is red as before.",
    "It still fails with the same message.",
    "Das hat nicht funktioniert, der Test ist rot.",
    "Es geht immer noch nicht.",
    "Ça ne marche toujours pas.",
    "Eso no funcionó, la prueba sigue fallando.",
    "Isso não funcionou, aparece o mesmo erro.",
    "还是不行，测试没有通过。",
    "まだ動かないです。テストが失敗します。",
    "Non ha funzionato, vedo lo stesso errore.",
)


class PlantedRun(NamedTuple):
    """Is a run, whose requests end with the items up to each of `requests`."""

    kind: str
    items: tuple[ContextItem, ...]
    requests: tuple[int, ...]  # numbers of items
    stuck_at: int | None  # the request from which on it is stuck; None: never


class _Run:
    """Collects a run's items."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.items: list[ContextItem] = []
        self.requests: list[int] = []
        self.speaks = chance.choice(("heading", "json", "behind", "marked", "words"))
        self.file = chance.choice(FILES)
        self.name = chance.choice(NAMES)
        self.stuck_at: int | None = None

    def says(self, role: Role, text: str) -> None:
        self.items.append(measure(Message(role, (TextPart(text),))))
        if role == "user":
            self.requests.append(len(self.items))

    def calls(self, tool: str, given: dict[str, object], output: str, code: int = 0) -> None:
        """Adds a call with its output, as this agent's tools word it."""
        call_id = f"call_{len(self.items)}_{self.chance.randrange(10**6)}"
        if self.chance.random() < 0.1:
            self.says("assistant", "I look at that next.")
        self.items.append(measure(FunctionCall(call_id, tool, json.dumps(given))))
        text = self._worded(output, code)
        self.items.append(measure(FunctionCallOutput(call_id, (TextPart(text),))))
        self.requests.append(len(self.items))

    def _worded(self, output: str, code: int) -> str:
        seconds = self.chance.uniform(0.01, 9)
        if self.speaks == "heading":
            chunk = f"{self.chance.randrange(16**6):06x}"
            heading = f"Chunk ID: {chunk}\nWall time: {seconds:.4f} seconds\n"
            return f"{heading}Process exited with code {code}\nOutput:\n{output}"
        if self.speaks == "json":
            metadata = {"exit_code": code, "duration_seconds": round(seconds, 1)}
            return json.dumps({"output": output, "metadata": metadata})
        if self.speaks == "behind":
            return f"{output}\n[exit code: {code}]"
        if self.speaks == "marked":
            return f"Error: Exit code {code}\n{output}" if code else output
        return output

    def shell(self, command: str, output: str, code: int = 0) -> None:
        self.calls("shell", {"command": ["bash", "-lc", command]}, output, code)

    def reads(self, file: str | None = None) -> None:
        name = file or self.chance.choice(FILES)
        start = self.chance.randrange(1, 400)
        text = f'raise ValueError("{self.chance.choice(NAMES)}")\n# FAILED tests are logged\n' * 3
        if self.chance.random() < 0.5:
            self.shell(f"sed -n '{start},{start + 80}p' {name}", text)
        else:
            self.calls("read_file", {"path": name, "offset": start, "limit": 80}, text)

    def looks(self) -> None:
        kind = self.chance.randrange(5)
        if kind == 0:
            self.shell(f"rg -n '{self.chance.choice(NAMES)}_{len(self.items)}' src", "", 1)
        elif kind == 1:
            self.shell("git status --short", f" M {self.file}\n?? notes-{len(self.items)}.txt")
        elif kind == 2:
            folder = f"{self.file.split('/', maxsplit=1)[0]}/part_{self.chance.randrange(12)}"
            self.shell(f"ls {folder}", "\n".join(FILES))
        else:
            self.reads()

    def edits(self) -> None:
        line = self.chance.randrange(10**6)
        if self.chance.random() < 0.5:
            patch = f"*** Begin Patch\n*** Update File: {self.file}\n+x = {line}\n*** End Patch"
            said = f"Success. Updated the following files:\nM {self.file}"
            self.calls("apply_patch", {"input": patch}, said)
        else:
            given: dict[str, object] = {"file_path": self.file, "new_string": f"x = {line}"}
            self.calls("Edit", given, f"The file {self.file} has been updated.")

    def tests(self, *, failing: str | None = None, command: str = "") -> None:
        command = command or f"pytest -q tests/test_{self.name}.py"
        seconds = self.chance.uniform(0.1, 30)
        if failing is None:
            self.shell(command, f"{self.chance.randrange(2, 90)} passed in {seconds:.2f}s")
        else:
            output = f"E   AssertionError: {failing}\nFAILED tests/test_{self.name}.py::test_it"
            self.shell(command, f"{output}\n1 failed, 7 passed in {seconds:.2f}s", 1)

    def is_stuck(self) -> None:
        """Notes that from the newest request on it is stuck."""
        self.stuck_at = len(self.requests) - 1

    def planted(self, kind: str) -> PlantedRun:
        return PlantedRun(kind, tuple(self.items), tuple(self.requests), self.stuck_at)


def _some(run: _Run, low: int, high: int, do: Callable[[], None]) -> None:
    for _ in range(run.chance.randint(low, high)):
        do()


def _begin(run: _Run) -> None:
    run.says("user", run.chance.choice(ASKS))
    _some(run, 1, 5, run.looks)


# -- clean runs --------------------------------------------------------------------------------


def _explores(run: _Run) -> None:
    _begin(run)
    _some(run, 3, 12, run.looks)
    if run.chance.random() < 0.3:  # the same file again, as long contexts make them do
        given: dict[str, object] = {"path": run.file}
        for _ in range(2):
            run.calls("read_file", given, "def total(items):\n    return sum(items)")
            run.looks()


def _fixes(run: _Run) -> None:
    """Reproduces a failure, mends it in one to three tries, and goes on with the next ask."""
    _begin(run)
    run.tests(failing=f"expected 3, got {run.chance.randrange(4, 99)}")
    _some(run, 0, 3, run.looks)
    for attempt in range(run.chance.choice((1, 1, 1, 2, 2, 3))):
        run.edits()
        if attempt:
            run.tests(failing=f"'{run.chance.choice(NAMES)}' is not {attempt}")
            run.reads()
            run.edits()
        _some(run, 0, 2, run.looks)
    run.tests()
    _some(run, 0, 2, run.edits)
    run.tests()
    run.says("assistant", "Done: it counts once now, and the tests pass.")
    run.says("user", run.chance.choice(GOING_ON))
    _some(run, 1, 3, run.looks)


def _slips(run: _Run) -> None:
    """Guesses a path or a tool that is not there, and goes on."""
    _begin(run)
    run.shell(f"cat {run.file}.orig", f"cat: {run.file}.orig: No such file or directory", 1)
    _some(run, 1, 4, run.looks)
    run.edits()
    if run.chance.random() < 0.5:
        run.shell("poetry run pytest", "bash: poetry: command not found", 127)
        run.looks()
    run.edits()
    run.tests()


def _waits(run: _Run) -> None:
    _begin(run)
    for _ in range(run.chance.randint(2, 6)):
        run.calls("wait_agent", {"ids": ["a1"], "timeout_ms": 30_000}, "still running")
    run.calls("wait_agent", {"ids": ["a1"], "timeout_ms": 30_000}, "done: 4 files reviewed")
    run.looks()
    run.edits()
    run.tests()


def _writes(run: _Run) -> None:
    _begin(run)
    for _ in range(run.chance.randint(4, 12)):
        run.edits()
        if run.chance.random() < 0.4:
            run.tests()
        if run.chance.random() < 0.3:
            run.looks()


# -- loops -------------------------------------------------------------------------------------


def _same_failing_call(run: _Run) -> None:
    _begin(run)
    for turn in range(6):
        run.shell("make build", "src/a.c:3: error: 'total' undeclared\nmake: *** [a.o] Error 1", 2)
        if turn == 1:
            run.is_stuck()


def _same_call(run: _Run) -> None:
    _begin(run)
    given: dict[str, object] = {"query": "where is the total computed"}
    for turn in range(6):
        run.calls("lookup_docs", given, "No page names it. See the index.")
        if turn == 1:
            run.is_stuck()


def _two_in_turn(run: _Run) -> None:
    _begin(run)
    for turn in range(4):
        run.shell("cat src/store.py", "def total(items):\n    return sum(items)")
        if turn == 1:
            run.is_stuck()
        run.shell("cat src/lock.rs", "fn lock() {}")


def _edits_to_no_end(run: _Run) -> None:
    _begin(run)
    run.tests(failing="expected 3, got 4")
    for turn in range(5):
        _some(run, 0, 1, run.reads)
        run.edits()
        run.tests(failing="expected 3, got 4")
        if turn == 0:
            run.is_stuck()


def _patch_does_not_apply(run: _Run) -> None:
    _begin(run)
    for turn in range(5):
        patch = f"*** Begin Patch\n*** Update File: {run.file}\n+x = {turn}\n*** End Patch"
        said = f"Failed to find expected lines in {run.file}: invalid context"
        run.calls("apply_patch", {"input": patch}, said, 1)
        if turn == 1:
            run.is_stuck()


def _one_error_many_commands(run: _Run) -> None:
    _begin(run)
    error = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'yaml'"
    for turn, command in enumerate(("python app.py", "python -m app", "python run.py", "./app")):
        run.shell(command, error, 1)
        if turn == 1:
            run.is_stuck()


def _one_error_after_another(run: _Run) -> None:
    _begin(run)
    for turn in range(6):
        error = f"{run.chance.choice(NAMES)}Error: {run.chance.randrange(10**6)} is not allowed"
        run.shell(f"python tool_{turn}.py", f"Traceback (most recent call last):\n{error}", 1)
        if turn == 1:
            run.is_stuck()


def _complaint(run: _Run) -> None:
    _fixes(run)
    run.says("assistant", "Done.")
    run.says("user", run.chance.choice(COMPLAINTS))
    run.is_stuck()
    _some(run, 2, 4, run.looks)


def _same_ask(run: _Run) -> None:
    run.says("user", ASKS[1])
    _some(run, 1, 4, run.looks)
    run.says("assistant", "It does so already.")
    run.says("user", ASKS[1].replace(";", ", please"))
    run.is_stuck()
    _some(run, 2, 4, run.looks)


CLEAN = (_explores, _fixes, _slips, _waits, _writes)
LOOPS = (
    *(_same_failing_call, _same_call, _two_in_turn, _edits_to_no_end, _patch_does_not_apply),
    *(_one_error_many_commands, _one_error_after_another, _complaint, _same_ask),
)


def planted_runs(seed: int, num_each: int) -> Iterator[PlantedRun]:
    """Yields that many runs of each kind, clean ones first."""
    for make in (*CLEAN, *LOOPS):
        for number in range(num_each):
            run = _Run(random.Random(f"{seed} {make.__name__} {number}"))
            make(run)
            yield run.planted(make.__name__.strip("_").replace("_", " "))
