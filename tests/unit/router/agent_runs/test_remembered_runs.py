"""A conversation's items are read once, however its context comes."""

import pytest

from backends.contract import (
    ContextItem,
    FunctionCall,
    GenerateRequest,
    Message,
    Reasoning,
    TextPart,
)
from backends.prompt import measure, prompt_size
from router.agent_runs import remembered_runs
from router.agent_runs.remembered_runs import MAX_ITEMS, RememberedRuns
from router.agent_runs.run_state import NEW_RUN, RunState, read
from tests.unit.router.agent_runs.planted_runs import planted_runs
from tests.unit.router.tasks import task


def request(items: tuple[ContextItem, ...], instructions: str = "Be brief.") -> GenerateRequest:
    num_tokens, prefix = prompt_size(instructions, (), task().request.text_format, items)
    return GenerateRequest(
        id="resp_1",
        model="auto",
        items=items,
        num_prompt_tokens=num_tokens,
        prefix=prefix,
        max_output_tokens=1,
    )


@pytest.fixture
def num_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counted: list[int] = []

    def counting(run: RunState, items: tuple[ContextItem, ...]) -> RunState:
        counted.append(len(items))
        return read(run, items)

    monkeypatch.setattr(remembered_runs, "read", counting)
    return counted


def test_only_what_is_new_is_read(num_read: list[int]) -> None:
    for run in planted_runs(7, 2):
        memory = RememberedRuns()
        num_read.clear()
        for num_items in run.requests:
            found = memory.run_of("acme", request(run.items[:num_items]))
            assert found == read(NEW_RUN, run.items[:num_items])
        # The first item is read again with the second request, which alone is remembered.
        assert sum(num_read) <= len(run.items) + 1


def test_items_without_tokens_are_found_again(num_read: list[int]) -> None:
    run = next(planted_runs(7, 1))
    thought = measure(Reasoning(id="rs_1"))
    memory = RememberedRuns()
    memory.run_of("acme", request(run.items[:3]))
    num_read.clear()
    found = memory.run_of("acme", request((*run.items[:3], thought, *run.items[3:5])))
    assert found == read(NEW_RUN, run.items[:5])
    assert num_read == [2]


def test_the_same_items_of_another_tenant_are_unknown(num_read: list[int]) -> None:
    run = next(planted_runs(7, 1))
    memory = RememberedRuns()
    for tenant in ("acme", "other", "acme"):
        memory.run_of(tenant, request(run.items))
    assert num_read == [len(run.items), len(run.items), 0]
    memory.erase("acme")
    memory.run_of("acme", request(run.items))
    assert num_read[-1] == len(run.items)


def test_of_a_long_context_that_is_unknown_the_newest_items_are_read(num_read: list[int]) -> None:
    items = tuple(measure(Message("assistant", (TextPart(str(n)),))) for n in range(2 * MAX_ITEMS))
    memory = RememberedRuns()
    memory.run_of("acme", request(items))
    memory.run_of("acme", request((*items, measure(FunctionCall("c", "ls", "{}")))))
    assert num_read == [MAX_ITEMS, 1]


def test_what_is_remembered_is_bounded() -> None:
    memory = RememberedRuns(max_runs=2)
    for run in planted_runs(7, 1):
        memory.run_of("acme", request(run.items))
    assert len(memory._runs) == 2
