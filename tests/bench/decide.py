"""Measures one decision in CPU-microseconds: classify and rank, reserve and settle.

    python tests/bench/decide.py [--json]

Every row is this process's CPU time (user and system) per operation, the median and the best of
several rounds. The baselines come from the same run: an empty call of the same shape for the pure
parts, a PING through the same client for Redis. Server time is not in it.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import uvloop

from backends.contract import (
    BackendInfo,
    BackendStats,
    FunctionCall,
    FunctionCallOutput,
    GenerateRequest,
    Message,
    TextPart,
)
from backends.prompt import measure
from gateway.process.embedded_redis import EmbeddedRedis
from router.classify.classify import classify, features
from router.classify.task import GroupLimits, Hints, Route, Task, TaskClass, Tenant
from router.classify.text_features import forget_readings
from router.decide.admission import decide, demands
from router.decide.backend_speed import MIN_SAMPLES
from router.decide.decision import RouteDecision
from router.decide.ranking import rank
from router.decide.weighing import weigh
from router.learn.experience import Experience
from router.learn.learning import MIN_OUTCOMES
from router.policy.conditions import Situation, When
from router.policy.policy import DEFAULT_POLICY, MAX_RULES, Policy, Rule
from router.policy.rules import first_rule
from router.pools.memory_pools import MemoryPools
from router.pools.pools import Demand
from router.pools.redis_pools import RedisPools
from router.record.recording import TaskOutcome, encode_line, record_of

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import rows as shape

ROUNDS = 5
KINDS = When(kinds=("translate",))
LIMITS = GroupLimits(requests_per_min=10**9, tokens_per_min=10**9, max_concurrent=10**6)
TENANT = Tenant(id="bench", tier="bench", limits={"fast": LIMITS, "deep": LIMITS})
SENTENCE = "Please fix the flaky scheduler test, then explain what was wrong and why it failed. "
DEMANDS = ((Demand(group="fast", tokens=900), Demand(group="deep", tokens=900)),)


class Row(NamedTuple):
    """Is one line of the result: CPU-us per operation."""

    name: str
    median_us: float
    best_us: float


def bench(name: str, repeat: int, operation: Callable[[], object]) -> Row:
    rounds = []
    for _ in range(ROUNDS):
        started_ns = time.process_time_ns()
        for _ in range(repeat):
            operation()
        rounds.append((time.process_time_ns() - started_ns) / repeat / 1_000)
    return Row(name, statistics.median(rounds), min(rounds))


async def bench_async(
    name: str, repeat: int, width: int, operation: Callable[[int], Awaitable[object]]
) -> Row:
    """Runs `repeat` operations, `width` of them at once."""
    rounds = []
    for _ in range(ROUNDS):
        started_ns = time.process_time_ns()
        for start in range(0, repeat, width):
            if width == 1:
                await operation(start)
            else:
                await asyncio.gather(*(operation(start + n) for n in range(width)))
        rounds.append((time.process_time_ns() - started_ns) / repeat / 1_000)
    return Row(name, statistics.median(rounds), min(rounds))


def make_task(num_tokens: int) -> Task:
    prompt = (SENTENCE * (num_tokens * 4 // len(SENTENCE) + 1))[: num_tokens * 4]
    request = GenerateRequest(
        id="resp_bench",
        model="auto",
        items=(),
        num_prompt_tokens=num_tokens,
        prefix=(),
        max_output_tokens=4_096,
    )
    return Task(
        id="resp_bench",
        tenant=TENANT,
        request=request,
        hints=Hints(),
        last_user_message=prompt,
        num_last_message_tokens=num_tokens,
        num_turns=1,
        has_images=False,
        last_backend=None,
        arrived_us=0,
    )


def make_stats() -> list[BackendStats]:
    return [
        BackendStats(
            info=BackendInfo(
                name=f"{group}-{number}",
                model=group,
                group=group,
                window_tokens=131_072,
                max_output_tokens=32_768,
            ),
            healthy=True,
            num_running=number,
            num_waiting=0,
            max_num_seqs=64,
            kv_used_tokens=0,
            kv_capacity_tokens=1_000_000,
        )
        for group in ("fast", "deep")
        for number in range(2)
    ]


def label(task: Task) -> str:
    """Labels a task as if its prompt had never come before."""
    forget_readings()
    return classify(features(msgspec.structs.replace(task))).label


def pure_rows() -> list[Row]:
    stats, pools = make_stats(), MemoryPools()
    rows = [bench("baseline: an empty call", 200_000, lambda: None)]
    for num_tokens in (12, 50, 200, 1_000, 160_000):
        task = make_task(num_tokens)
        rows.append(
            bench(
                f"features + classify, {num_tokens} tokens asked",
                2_000,
                partial(label, task),
            )
        )
    task = make_task(50)
    task_class = classify(features(task))
    rows.append(
        bench("rank, 4 backends", 5_000, lambda: rank(DEFAULT_POLICY, task, task_class, stats))
    )
    rows += weighing_rows(task, task_class, stats)
    rows += policy_rows(task, task_class, stats)
    ranked = rank(DEFAULT_POLICY, task, task_class, stats)
    assert isinstance(ranked, tuple)

    def admit_and_settle() -> None:
        asked = demands(task, task_class, ranked)
        grant = pools.reserve_first(TENANT, "resp_bench", asked, 0)
        decision = decide(task, task_class, ranked, grant, DEFAULT_POLICY)
        assert decision.reservation is not None
        pools.settle(decision.reservation, {"fast": 500, "deep": 500}, 0)

    rows.append(bench("demands, reserve, decide, settle: memory", 2_000, admit_and_settle))
    return rows


def policy_rows(task: Task, task_class: TaskClass, stats: list[BackendStats]) -> list[Row]:
    """Times what rules cost, and a line of the decision log."""

    def asked(name: str, *rules: Rule) -> Row:
        policy = Policy(rules=rules)
        return bench(name, 2_000, lambda: first_rule(policy, Situation(task, task_class, stats)))

    others = When(tenants=("somebody-else",), labels=("deep",))
    many = [Rule(name=f"r{n}", route=Route.FAST, when=others) for n in range(MAX_RULES)]
    ranked = rank(DEFAULT_POLICY, task, task_class, stats)
    assert isinstance(ranked, tuple)
    decision = RouteDecision(
        task_id=task.id, task_class=task_class, ranked=ranked, policy_version="v1", chosen=ranked[0]
    )
    infos = {stat.info.name: stat.info for stat in stats}
    course = TaskOutcome(outcome="ok", duration_us=1_000_000)
    return [
        asked("rules: the default ones", *DEFAULT_POLICY.rules),
        asked(f"rules: {MAX_RULES}, none of which holds", *many),
        asked("rules: one by kind of work", Rule(name="k", route=Route.FAST, when=KINDS)),
        asked("rules: one that takes a share", Rule(name="s", route=Route.FAST, percent=0.01)),
        bench(
            "a line of the decision log, encoded",
            2_000,
            lambda: encode_line(record_of(task, decision, course, infos)),
        ),
    ]


def weighing_rows(task: Task, task_class: TaskClass, stats: list[BackendStats]) -> list[Row]:
    """Weighs what is known besides the prompt: of a new conversation, and in a tool loop."""
    policy = DEFAULT_POLICY
    seen = features(task)
    report = FunctionCallOutput("call_1", (TextPart("FAILED tests/test_lock.py\n" * 200),))
    call = measure(FunctionCall("call_1", "run", "{}"))
    message = measure(Message("user", (TextPart(task.last_user_message),)))
    loop = msgspec.structs.replace(
        task,
        request=msgspec.structs.replace(
            task.request, items=(message, *[call, measure(report)] * 12), num_prompt_tokens=40_000
        ),
        last_backend="fast-0",
    )
    fresh, learned = Experience(), Experience()
    pending = learned.note_answer(
        task, task_class, (), answered_by="fast", others=(), backend="fast-0", pinned=False
    )
    for number in range(2 * MIN_OUTCOMES):
        outcome = {"fast": float(number % 2), "deep": 1.0}
        learned.learner(TENANT.id).observe(pending.observation("feedback", outcome))  # type: ignore[arg-type]
    for experience in (fresh, learned):
        for stat in stats:
            for _ in range(MIN_SAMPLES):
                experience.backend_speeds.note(stat.info.name, 100_000, 10_000)

    def decide_on(experience: Experience, asked: Task) -> None:
        course = experience.arrival(asked, stats)
        facts = experience.facts(asked, task_class, seen.reading, course, 0)
        weigh(policy.tradeoff, policy.band, asked, task_class, stats, facts)

    def note() -> None:
        fresh.note_answer(
            task, task_class, (), answered_by="fast", others=(), backend="fast-0", pinned=False
        )

    return [
        bench("weigh, new conversation", 5_000, partial(decide_on, fresh, task)),
        bench("weigh, with outcomes learned", 5_000, partial(decide_on, learned, task)),
        bench(
            "weigh, in a tool loop of 12 failing reports", 1_000, partial(decide_on, fresh, loop)
        ),
        bench("note an answer for later outcomes and drift", 2_000, note),
    ]


async def redis_rows() -> list[Row]:
    server = EmbeddedRedis()
    pools = RedisPools(await server.start(), budget_us=5_000_000)
    rounds_done = 0

    async def pair(number: int) -> None:
        nonlocal rounds_done
        rounds_done += 1
        grant = await pools.reserve_first(TENANT, f"{rounds_done}-{number}", DEMANDS)
        assert grant.reservation is not None
        await pools.settle(grant.reservation, {"fast": 500, "deep": 500})

    async def ping(_: int) -> None:
        await pools.ping()

    try:
        await pair(0)
        rows = [await bench_async("baseline: Redis PING, one at a time", 1_000, 1, ping)]
        for width in (1, 8, 64):
            name = f"reserve + settle: Redis, {width} at once"
            rows.append(await bench_async(name, 1_024, width, pair))
    finally:
        await pools.close()
        await server.stop()
    return rows


CLASSIFIED, RANKED = "features + classify, 50 tokens asked", "rank, 4 backends"
ONE_PING = "baseline: Redis PING, one at a time"


def rows_of(rows: list[Row]) -> list[shape.Row]:
    """Compares the decision itself with the cheapest thing that Redis can be asked."""
    by_name = {row.name: row for row in rows}
    ping = by_name[ONE_PING].median_us
    parts = (CLASSIFIED, RANKED, "weigh, new conversation")
    weighed = sum(by_name[name].median_us for name in parts)
    both = "reserve + settle: Redis, 64 at once"
    asked = (("classify, weigh and rank a task", weighed), (both, by_name[both].median_us))
    return [
        shape.Row(
            name=name,
            unit="CPU-us/task",
            values=[us],
            baseline="a Redis PING",
            baseline_values=[ping],
            per="task",
            cpu_us=[us],
        )
        for name, us in asked
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")
    shape.add_argument(parser)
    arguments = parser.parse_args()
    measured = pure_rows() + uvloop.run(redis_rows())
    if arguments.rows is not None:
        shape.publish(rows_of(measured), arguments)
        return
    for row in measured:
        if arguments.json:
            print(json.dumps(row._asdict()))
        else:
            print(f"{row.name:<50} {row.median_us:8.1f} us   best {row.best_us:8.1f} us")


if __name__ == "__main__":
    main()
