"""Plays events into a strategy by hand or at random, and tells in short what it did."""

import random
from typing import Any, Literal

from backends.contract import (
    BackendError,
    Delta,
    DeltaKind,
    Finish,
    FinishReason,
    GenerateRequest,
    Usage,
)
from backends.delegation import DELEGATE_TOOL
from router.strategies.actions import (
    Action,
    CancelBranch,
    EndRun,
    Forward,
    StartBranch,
    WakeAt,
)
from router.strategies.breadth import Vary
from router.strategies.draft import Draft
from router.strategies.machine import Machine
from router.strategies.part_requests import TaskPart
from router.strategies.table import RECORDS
from router.strategies.tool_rounds import Converse

TEXT, REASONING, CALL = DeltaKind.TEXT, DeltaKind.REASONING, DeltaKind.FUNCTION_CALL
STOP, LENGTH, ERROR = FinishReason.STOP, FinishReason.LENGTH, FinishReason.ERROR
C: Literal["commentary"] = "commentary"
A: Literal["final_answer"] = "final_answer"
WAKE: Literal["wake"] = "wake"  # the timer rings

REQUEST = GenerateRequest(
    id="resp_1", model="auto", items=(), num_prompt_tokens=0, prefix=(), max_output_tokens=1
)

Event = tuple[int, Delta | Finish | Literal["stall"]] | Literal["wake"]
Row = tuple[str, list[Event], list[object]]


def delta(text: str, index: int = 0, kind: DeltaKind = TEXT, at_us: int = 1) -> Delta:
    return Delta(index, kind, text, len(text), at_us)


def handing(arguments: str, index: int = 0, tool: str = DELEGATE_TOOL) -> Delta:
    """Returns a call of a tool of the gateway's."""
    return Delta(index, CALL, arguments, 1, 1, f"call_{index}", tool)


def done(tokens: int = 1, reason: FinishReason = FinishReason.STOP) -> Finish:
    return Finish(reason, Usage(num_input_tokens=10, num_output_tokens=tokens), 100 + tokens)


def failed(backend: str = "deep") -> Finish:
    error = BackendError(backend, "server_error", "it broke", retryable=True)
    return Finish(FinishReason.ERROR, Usage(num_output_tokens=1), 50, error)


def machine_of(strategy: str | None, request: GenerateRequest, **options: Any) -> Machine:
    record = RECORDS[strategy]
    return record.machine(record.options(**options), request)


def play(machine: Machine, events: list[Event]) -> list[Action]:
    """Returns what it does from its start on, with every event that comes."""
    actions = machine.start(0)
    for event in events:
        if event == WAKE:
            actions += machine.on_time(max(a.at_us for a in actions if isinstance(a, WakeAt)))
        elif isinstance(event[1], Finish):
            actions += machine.on_finish(event[0], event[1], 1)
        elif event[1] == "stall":
            actions += machine.on_stall(event[0])
        else:
            actions += machine.on_delta(event[0], event[1])
    return actions


def in_short(actions: list[Action]) -> list[object]:
    """In short: (index, text, phase), ("cancel", branch), ("begin", branch, part), and the end as
    (reason, output tokens, number of errors); timers are left out.
    """
    short: list[object] = []
    for action in actions:
        if isinstance(action, Forward):
            short.append((action.delta.index, action.delta.text, action.phase))
        elif isinstance(action, CancelBranch):
            short.append(("cancel", action.branch))
        elif isinstance(action, StartBranch):
            short.append(("begin", action.branch, action.part))
        elif isinstance(action, EndRun):
            usage = action.finish.usage
            short.append((action.finish.reason, usage.num_output_tokens, len(action.errors)))
    return short


def random_side(chance: random.Random, branch: int, part: TaskPart) -> list[Delta | Finish]:
    """Draws a generation: indexes never fall, one kind per item; a finish, or silence for ever."""
    events: list[Delta | Finish] = []
    index = 0
    kind = chance.choice([TEXT, TEXT, REASONING, CALL])
    for number in range(chance.randrange(8)):
        if chance.random() < 0.3:
            index += 1
            kind = chance.choice([TEXT, TEXT, REASONING, CALL])
        events.append(delta(f"{branch}:{index}:{number};", index, kind))
    if isinstance(part, Converse):  # it hands on, sometimes with arguments that make no sense
        for _ in range(chance.randrange(4)):
            index += 1
            events.append(
                handing(chance.choice(['{"task":"t"}', "{", "{}"]), index, part.tool.name)
            )
    helps = isinstance(part, Draft | Vary)
    helps = helps or (isinstance(part, Converse) and part.round == "meanwhile")
    if helps and chance.random() < 0.15:
        return events  # a helper hangs: the strategy itself must see to it
    finish = failed(str(branch)) if chance.random() < 0.25 else done(len(events))
    return [*events, finish]


def play_at_random(machine: Machine, chance: random.Random) -> list[Action]:
    """Runs over engines that say, fail and hang at random, until nothing more can happen."""
    actions = machine.start(0)
    sides: dict[int, list[Delta | Finish]] = {}
    silenced: set[int] = set()
    wake_us: int | None = None
    num_seen = 0
    while True:
        for action in actions[num_seen:]:
            if isinstance(action, StartBranch):
                assert action.branch not in sides, "a branch begins once"
                sides[action.branch] = random_side(chance, action.branch, action.part)
            elif isinstance(action, CancelBranch):
                assert action.branch in sides, "only what has begun is cancelled"
                silenced.add(action.branch)
            elif isinstance(action, WakeAt):
                wake_us = action.at_us
        num_seen = len(actions)
        speaking = [b for b, left in sides.items() if left]
        if wake_us is not None and (not speaking or chance.random() < 0.1):
            at_us, wake_us = wake_us, None
            actions = actions + machine.on_time(at_us)
        elif speaking:
            branch = chance.choice(speaking)
            event = sides[branch].pop(0)
            if branch in silenced and chance.random() < 0.5:
                continue  # a cancelled one mostly falls silent; what still comes is not heard
            if isinstance(event, Finish):
                actions = actions + machine.on_finish(branch, event, 1)
            else:
                actions = actions + machine.on_delta(branch, event)
        else:
            return actions


def check_forwards(forwards: list[Forward]) -> None:
    """Indexes rise by one from 0; an item has one branch, one own index, kind and phase.

    What one branch says in one phase keeps its order; calls are never commentary.
    """
    expected = -1
    item: tuple[object, ...] | None = None
    texts: dict[tuple[str, str], list[str]] = {}
    for forward in forwards:
        own = tuple(forward.delta.text.split(";")[0].split(":")[:2])
        assert own[0] == str(forward.branch)
        if forward.delta.index != expected:
            expected += 1
            assert forward.delta.index == expected
            item = (*own, forward.delta.kind, forward.phase)
        assert item == (*own, forward.delta.kind, forward.phase)
        assert forward.phase is not None
        assert forward.phase == A or forward.delta.kind < CALL
        pieces = [piece for piece in forward.delta.text.split(";") if piece]
        texts.setdefault((own[0], forward.phase), []).extend(pieces)
    for said in texts.values():
        assert said == sorted(said, key=lambda t: [int(n) for n in t.split(":")])
