"""Tests answers that break off or stall amid their words, and that another engine goes on with."""

import asyncio
import random
from typing import Any

import msgspec
import pytest

from backends.contract import BackendError, BackendGroup, Message
from backends.prompt import parts_text
from gateway.core.job import Job
from gateway.run import stall_watch
from gateway.task.pipeline import handle_task
from router.classify.task import Tenant
from tests.e2e.events import check_response
from tests.patience import until
from tests.unit.gateway.breaking_backend import TEXT, TOKENS, BreakingBackend, Fault
from tests.unit.gateway.doubles import MANY
from tests.unit.gateway.world import World

FULL_US = 60_000_000
SEED = 20261122
# Where the break comes: before the first token, at the first, in the middle, behind the last.
PLACES = (0, 1, 2, *sorted(random.Random(SEED).sample(range(3, len(TOKENS)), 4)), len(TOKENS))
RUNS: list[tuple[str, dict[str, str]]] = [
    ("fast", {}),
    ("deep", {}),
    ("parallel", {"strategy": "hedge"}),
    ("parallel", {"strategy": "breadth", "n": "2"}),
    ("parallel", {"strategy": "breadth", "n": "2", "judge": "false"}),
    ("parallel", {"strategy": "delegate"}),
    ("parallel", {"strategy": "advise"}),
    ("parallel", {"strategy": "verify", "verdict": "false"}),
]


def backend(group: BackendGroup, *breaks_at: int | None, **options: Any) -> BreakingBackend:
    return BreakingBackend({"fast": "wafer", "deep": "gpu"}[group], group, *breaks_at, **options)


class Site:
    """Is a gateway over two breaking backends, and a clock that a test moves."""

    def __init__(self, *given: BreakingBackend, **world: Any) -> None:
        backends = {"wafer": backend("fast"), "gpu": backend("deep")}
        backends |= {each.info.name: each for each in given}
        self.now_us = 1_000_000
        self.fast, self.deep = backends["wafer"], backends["gpu"]
        for each in backends.values():
            each.clock_us = lambda: self.now_us
        self.world = World(clock_us=lambda: self.now_us, **world)
        self.world.gw.backends = dict(backends)

    async def run(self, route: str | None, hints: dict[str, str], **fields: Any) -> dict[str, Any]:
        """Runs one task, past the silence of whatever stalls."""
        metadata = ({} if route is None else {"route": route}) | hints
        job = self.world.job(metadata=metadata, **fields)
        task = asyncio.create_task(handle_task(self.world.gw, job))
        num_seen = 0
        while not task.done():
            num_stalled = self.fast.num_stalled + self.deep.num_stalled
            if num_stalled > num_seen:
                num_seen = num_stalled
                for _ in range(20):
                    await asyncio.sleep(0)  # all that can be said has been
                self.now_us += FULL_US
            await asyncio.sleep(0)
        await task
        await self.world.check()
        check_response(self.world.heard.events)
        return self.world.terminal


@pytest.fixture(autouse=True)
def looks_at_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the watch look at each turn of the loop: only the loop's timers take real time."""
    monkeypatch.setattr(stall_watch, "MIN_STALL_US", 0)
    monkeypatch.setattr(stall_watch, "LATE_US", FULL_US * 10)


def said(response: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [
        (item["content"][0]["text"], item.get("phase"))
        for item in response["output"]
        if item["type"] == "message"
    ]


@pytest.mark.parametrize("fault", ["breaks", "stalls"])
@pytest.mark.parametrize("group", ["fast", "deep"])
@pytest.mark.parametrize(("route", "hints"), RUNS, ids=lambda value: str(value))
async def test_the_text_is_that_of_an_unbroken_run(
    route: str, hints: dict[str, str], group: BackendGroup, fault: Fault
) -> None:
    whole = await Site().run(route, hints)
    assert whole["status"] == "completed"
    for place in PLACES:
        if place == 0 or (fault == "stalls" and place == len(TOKENS)):
            continue  # before its first word it is begun again, which other tests ask
        broken = backend(group, place, fault=fault)
        site = Site(broken)
        response = await site.run(route, hints)
        assert response["status"] == "completed", (place, response["error"])
        assert said(response) == said(whole), place
        if fault == "breaks":  # of what stalls, the double says nothing
            assert response["usage"]["output_tokens"] == whole["usage"]["output_tokens"], place
        took_part = bool(broken.generations)
        continued = response["routing"].get("continued", [])
        assert len(continued) == took_part, place
        for each in continued:
            assert each["reason"] == ("broke" if fault == "breaks" else "stalled")
            assert each["at_tokens"] == place
            assert each["at_chars"] == len("".join(TOKENS[:place]))
            assert each["from"] == broken.info.name


async def test_every_generation_is_charged_once_and_the_words_are_told_once() -> None:
    site = Site(backend("fast", 5))
    response = await site.run("fast", {})
    (first,), (rest,) = site.fast.generations, site.deep.generations
    num_prompt, num_words = first.request.num_prompt_tokens, len(TOKENS)
    assert rest.request.prefill == "".join(TOKENS[:5])
    assert rest.request.num_prompt_tokens > num_prompt
    assert rest.request.max_output_tokens == first.request.max_output_tokens - 5
    assert response["usage"]["output_tokens"] == num_words
    routing = response["routing"]
    assert routing["usage"]["wafer"]["output_tokens"] == 5
    assert routing["usage"]["gpu"]["output_tokens"] == num_words - 5
    assert routing["answered_by"] == "gpu"
    assert [each["name"] for each in routing["backends"]] == ["wafer", "gpu"]
    assert "errors" not in routing, "it was answered as it should"
    assert sorted(site.world.charged, key=str) == [
        {"deep": rest.request.num_prompt_tokens + num_words - 5},
        {"fast": num_prompt + 5},
    ]
    labels = {"from": "wafer", "to": "gpu", "reason": "broke"}
    assert site.world.sample("lanewise_continued_total", **labels) == 1
    assert response["model"] == "gpu-model"


async def test_what_it_reasoned_is_no_word_so_it_begins_again() -> None:
    spare = BreakingBackend("wafer-1", "fast", num_reasoning=3)
    site = Site(backend("fast", 2, num_reasoning=3), spare)
    response = await site.run("fast", {})
    assert said(response) == [(TEXT, None)]
    assert spare.only.request.prefill == ""
    routing = response["routing"]
    assert "continued" not in routing
    assert [(each["from"], each["to"]) for each in routing["failovers"]] == [("wafer", "wafer-1")]


async def test_the_next_engine_does_not_show_what_it_reasons_amid_the_answer() -> None:
    site = Site(backend("deep", 6, num_reasoning=4), backend("fast"))
    response = await site.run("deep", {})
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    assert said(response) == [(TEXT, None)]
    assert response["routing"]["continued"][0]["at_tokens"] == 6


async def test_within_a_call_it_fails() -> None:
    site = Site(backend("fast", len(TOKENS) + 2, ends_in_call=True))
    response = await site.run("fast", {})
    assert response["status"] == "failed"
    assert response["error"]["code"] == "server_error"
    assert site.deep.generations == []


async def test_a_call_may_come_behind_words_that_went_on() -> None:
    site = Site(backend("fast", 4, ends_in_call=True), backend("deep", ends_in_call=True))
    response = await site.run("fast", {})
    assert [item["type"] for item in response["output"]] == ["message", "function_call"]
    assert said(response) == [(TEXT, None)]
    assert response["output"][1]["arguments"] == '{"at":"x"}'


FAST_ONLY = Tenant(id="acme", tier="default", limits={"fast": MANY})
SECURITY = "Audit this OAuth token exchange for CSRF and privilege escalation vulnerabilities."


@pytest.mark.parametrize(
    ("fields", "tenant"),
    [
        ({"model": "wafer-model"}, None),
        ({"model": "gpu-model"}, None),
        ({"input": SECURITY}, None),
        ({"metadata": {"route": "fast"}}, FAST_ONLY),
    ],
    ids=["a fast model", "a deep model", "security", "no access"],
)
async def test_only_engines_that_may_have_the_task_go_on(
    fields: dict[str, Any], tenant: Tenant | None
) -> None:
    site = Site(backend("fast", 5), backend("deep", 5), **({"tenant": tenant} if tenant else {}))
    hints = fields.pop("metadata", {})
    response = await site.run(None, hints, **fields)
    assert response["status"] == "failed"
    assert response["error"]["code"] == "server_error"
    assert len(site.fast.generations) + len(site.deep.generations) == 1


@pytest.mark.parametrize("fields", [{"model": "twin"}, {"input": SECURITY}])
async def test_another_engine_of_the_kind_goes_on(fields: dict[str, Any]) -> None:
    twins = [
        BreakingBackend(name, "deep", at, model="twin") for name, at in (("gpu", 5), ("z", None))
    ]
    site = Site(backend("fast"), *twins)
    response = await site.run(None, {}, **fields)
    assert said(response) == [(TEXT, None)]
    assert [(each["from"], each["to"]) for each in response["routing"]["continued"]] == [
        ("gpu", "z")
    ]
    assert site.fast.generations == []


async def test_an_engine_without_a_prefill_is_not_asked() -> None:
    site = Site(backend("fast", 5), backend("deep", prefills=False))
    response = await site.run("fast", {})
    assert response["status"] == "failed"
    assert site.deep.generations == []


@pytest.mark.parametrize(("route", "hints"), RUNS, ids=lambda value: str(value))
async def test_a_stall_that_nobody_goes_on_with_ends_in_time(
    route: str, hints: dict[str, str]
) -> None:
    """It ends before the engine's own limit, which is for those that reason or write a call."""
    at = len(TOKENS) // 2
    stalls: Any = {"fault": "stalls", "prefills": False}
    site = Site(backend("fast", at, at, at, **stalls), backend("deep", at, at, **stalls))
    response = await site.run(route, hints)
    routing = response["routing"]
    if response["status"] == "failed":
        assert response["error"]["code"] == "server_error"
        assert "silent amid its words" in response["error"]["message"]
    else:
        assert any("silent" in error for error in routing["errors"])
        assert TEXT in [text for text, _ in said(response)], "another answer, and whole"


async def check_is_waited_for(site: Site, job: Job) -> None:
    """Runs a task whose fast engine stalls, and checks that it is left to it however long."""
    task = asyncio.create_task(handle_task(site.world.gw, job))
    await until(lambda: site.fast.num_stalled > 0)
    for _ in range(100):
        site.now_us += FULL_US
        await asyncio.sleep(0)
    assert not task.done(), "its backend's own time limit decides"
    job.stop("cancelled")
    await task
    await site.world.check()


async def test_a_stall_that_may_be_a_calls_arguments_is_waited_for() -> None:
    site = Site(backend("fast", 5, fault="stalls"), backend("deep", prefills=False))
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    await check_is_waited_for(site, site.world.job(metadata={"route": "fast"}, tools=tools))


async def test_it_goes_on_twice_and_no_more() -> None:
    site = Site(backend("fast", 3, 2), backend("deep", 4))
    response = await site.run("fast", {})
    assert response["status"] == "failed"
    told = [(each["from"], each["at_tokens"]) for each in response["routing"]["continued"]]
    assert told == [("wafer", 3), ("gpu", 7)]
    assert response["output"][0]["content"][0]["text"] == "".join(TOKENS[:9])
    site = Site(backend("fast", 3, None), backend("deep", 4))
    assert said(await site.run("fast", {})) == [(TEXT, None)]


async def test_an_engine_that_refuses_to_go_on_is_passed_over() -> None:
    site = Site(backend("deep", 10, None), backend("fast", 0, fault="refuses"))
    response = await site.run("deep", {})
    assert said(response) == [(TEXT, None)]
    told = [(each["from"], each["at_tokens"]) for each in response["routing"]["continued"]]
    assert told == [("gpu", 10), ("wafer", 10)]


async def test_an_engine_that_is_silent_as_it_goes_on_is_passed_over() -> None:
    site = Site(backend("deep", 10, None), backend("fast", 0, fault="stalls"))
    response = await site.run("deep", {})
    assert said(response) == [(TEXT, None)]
    told = [(each["from"], each["reason"]) for each in response["routing"]["continued"]]
    assert told == [("gpu", "broke"), ("wafer", "stalled")]


async def test_it_is_waited_for_where_nobody_else_can_go_on() -> None:
    site = Site(backend("deep", 10, prefills=False), backend("fast", 0, fault="stalls"))
    await check_is_waited_for(site, site.world.job(metadata={"route": "deep"}))


async def test_nobody_is_told_that_its_request_is_invalid_where_an_engine_refuses_ours() -> None:
    site = Site(backend("deep", 10, 0, 0), backend("fast", 0, fault="refuses"))
    response = await site.run("deep", {})
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")


async def test_an_answer_of_its_longest_that_breaks_is_cut() -> None:
    site = Site(backend("fast", 16))
    response = await site.run("fast", {}, max_output_tokens=16)
    assert (response["status"], response["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )
    assert site.deep.generations == []


async def test_a_cancel_while_it_goes_on_stops_it() -> None:
    site = Site(backend("fast", 5), backend("deep", 3, fault="stalls", prefills=True))
    job = site.world.job(metadata={"route": "fast"})
    task = asyncio.create_task(handle_task(site.world.gw, job))
    await until(lambda: site.deep.num_stalled > 0)
    job.stop("cancelled")
    await task
    await site.world.check()
    check_response(site.world.heard.events)
    response = site.world.terminal
    assert response["status"] == "incomplete"
    assert response["output"][0]["content"][0]["text"] == "".join(TOKENS[:8])
    assert site.deep.only.num_cancels == 1


@pytest.mark.parametrize("fault", ["breaks", "stalls"])
@pytest.mark.parametrize(("group", "other"), [("fast", "deep"), ("deep", "fast")])
async def test_a_steer_behind_a_break_takes_along_what_both_engines_said(
    group: BackendGroup, other: BackendGroup, fault: Fault
) -> None:
    site = Site(backend(group, 5, fault=fault), backend(other, 3, fault="stalls"))
    engines = {"fast": site.fast, "deep": site.deep}
    job = site.world.job(metadata={"route": group})
    task = asyncio.create_task(handle_task(site.world.gw, job))
    if fault == "stalls":
        await until(lambda: engines[group].num_stalled > 0)
        site.now_us += FULL_US
    await until(lambda: engines[other].num_stalled > 0)
    job.stop("steered")
    ended = await task
    await site.world.check()
    check_response(site.world.heard.events)
    response = site.world.terminal
    assert response["incomplete_details"] == {"reason": "steered"}
    both = "".join(TOKENS[:8])
    assert said(response) == [(both, None)]
    assert response["output"][0]["status"] == "completed", "the item in hand is ended cleanly"
    assert [each["at_tokens"] for each in response["routing"]["continued"]] == [5]
    assert engines[other].only.num_cancels == 1

    site.world.heard.events.clear()
    steered = site.world.job(parent=ended, metadata={"route": group}, input="Shorter.")
    await handle_task(site.world.gw, steered)
    await site.world.check()
    assert said(site.world.terminal) == [(TEXT, None)]
    request = engines[group].generations[-1].request
    assert request.prefill == "", "it is a new answer"
    messages = [entry.item for entry in request.items if isinstance(entry.item, Message)]
    told = [(message.role, parts_text(message.content)) for message in messages]
    assert told[1:] == [("assistant", both), ("user", "Shorter.")]


@pytest.mark.parametrize("num_reasoning", [0, 1])
@pytest.mark.parametrize(("group", "other"), [("fast", "deep"), ("deep", "fast")])
async def test_what_breaks_before_its_first_word_is_begun_again_by_the_other_group(
    group: BackendGroup, other: BackendGroup, num_reasoning: int
) -> None:
    """A client that asks for that route only wishes for it, and pins no model."""
    site = Site(backend(group, num_reasoning, num_reasoning=num_reasoning))
    response = await site.run(group, {})
    assert said(response) == [(TEXT, None)]
    moved = {"fast": ("wafer", "gpu"), "deep": ("gpu", "wafer")}[group]
    assert [(each["from"], each["to"]) for each in response["routing"]["failovers"]] == [moved]
    assert "continued" not in response["routing"]


@pytest.mark.parametrize("code", ["rate_limit_exceeded", "server_is_overloaded"])
async def test_a_route_that_is_asked_for_may_refuse_the_task(code: str) -> None:
    site = Site()
    site.fast.refusing = BackendError("wafer", code, "no room", retryable=True)
    await handle_task(site.world.gw, site.world.job(metadata={"route": "fast"}))
    assert site.world.refusal.code == code
    assert site.deep.generations == []


@pytest.mark.parametrize("fields", [{"model": "wafer-model"}, {"input": SECURITY}])
async def test_a_model_and_the_security_rule_bind_before_the_first_word_too(
    fields: dict[str, Any],
) -> None:
    site = Site(backend("fast", 0), backend("deep", 0))
    assert (await site.run(None, {}, **fields))["status"] == "failed"
    assert len(site.fast.generations) + len(site.deep.generations) == 1


def silent_site(*given: BreakingBackend, num_measured: int = 20) -> Site:
    """Returns a gateway whose engines time out after minutes, and had words within 0.1 s."""
    site = Site(*given)
    for each in site.world.gw.backends.values():
        assert isinstance(each, BreakingBackend)
        each._info = msgspec.structs.replace(each.info, first_token_timeout_us=2 * FULL_US)
        for _ in range(num_measured):
            site.world.gw.experience.backend_speeds.note_words(each.info.name, 100_000)
    return site


@pytest.mark.parametrize(("group", "other"), [("fast", "deep"), ("deep", "fast")])
async def test_an_engine_alone_that_says_nothing_at_all_is_left_for_an_idle_one(
    group: BackendGroup, other: BackendGroup
) -> None:
    site = silent_site(backend(group, 0, fault="stalls"))
    response = await site.run(group, {})
    engines = {"fast": site.fast, "deep": site.deep}
    assert said(response) == [(TEXT, None)]
    (moved,) = response["routing"]["failovers"]
    assert (moved["from"], moved["to"]) == tuple(engines[each].info.name for each in (group, other))
    assert "without a first word for" in moved["error"]
    assert engines[group].only.was_silent, "its health counts that"
    speeds = site.world.gw.experience.backend_speeds
    assert speeds.late_words_us(engines[group].info.name) == 100_000, "it had no words to time"


@pytest.mark.parametrize("strategy", ["draft", "breadth"])
async def test_a_deep_engine_that_says_nothing_at_all_is_done_without(strategy: str) -> None:
    site = silent_site(backend("deep", 0, fault="stalls"))
    response = await site.run("parallel", {"strategy": strategy})
    assert said(response)[-1] == (TEXT, "final_answer")
    assert response["routing"]["answered_by"] == "wafer"
    assert "without a first word for" in response["routing"]["errors"][0]
    assert site.deep.only.was_silent


async def test_another_of_its_group_comes_first() -> None:
    site = silent_site(backend("fast", 0, fault="stalls"), BreakingBackend("wafer-1", "fast"))
    response = await site.run("fast", {})
    assert said(response) == [(TEXT, None)]
    assert response["routing"]["answered_by"] == "wafer-1"
    assert site.fast.only.num_cancels == 1


async def test_an_engine_that_is_not_known_to_be_late_is_waited_for() -> None:
    site = silent_site(backend("fast", 0, fault="stalls"), num_measured=19)
    await check_is_waited_for(site, site.world.job(metadata={"route": "fast"}))


async def test_an_engine_that_says_nothing_is_not_left_for_a_full_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = silent_site(backend("fast", 0, fault="stalls"))
    full = msgspec.structs.replace(site.deep.stats(), num_running=site.deep.stats().max_num_seqs)
    monkeypatch.setattr(site.deep, "stats", lambda: full)
    await check_is_waited_for(site, site.world.job(metadata={"route": "fast"}))


async def test_how_long_first_words_took_is_remembered() -> None:
    site = Site(backend("deep", num_reasoning=3))
    for _ in range(20):
        site.world.heard.events.clear()
        await site.run("deep", {})
    speeds = site.world.gw.experience.backend_speeds
    assert speeds.late_words_us("gpu") == 0, "this clock stands still"
    assert speeds.late_words_us("wafer") is None
