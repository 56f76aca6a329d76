"""Makes arrivals of a decision log's records, of schema 1 and 2."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

import msgspec

from backends.contract import BackendGroup
from router.agent_runs.run_state import RunState
from router.backtest.arrivals import NOTHING_SEEN, AnswerLength, Arrival, Seen
from router.backtest.fleet import Outage
from router.backtest.lengths import WordOdds
from router.backtest.packed import Packed
from router.classify.agent import Agent, AgentRole
from router.classify.task import Hints, OptionValue, Route, Tenant
from router.decide.decision import Reason
from router.record.recording import DecisionRecord
from router.record.seen import NO_CONTEXT, NO_RUN
from router.strategies.table import RECORDS, REMOVED, STRATEGIES

WHOLE_PARTS = ("answer", "judge")  # of which a generation's length is that of a whole answer
NOTICED_US = 10_000_000  # a failed generation so long before an outage belongs to it
_US = 1_000_000
_ROUTES = {route.value: route for route in Route}


class Logged(msgspec.Struct, frozen=True):
    """Holds a log as a back-test reads it; the records belong to the arrivals, one to one."""

    arrivals: Packed[Arrival]
    facts: Packed["LoggedFacts"]
    tenants: dict[str, Tenant]
    outages: tuple[Outage, ...]
    schema: int  # the oldest of its lines
    odds: WordOdds = WordOdds()  # as far as its strategies showed them
    num_undecided: int = 0  # of its client's mistake, or over a budget: left out
    num_again: int = 0  # lines of tasks that were read before: left out


class LoggedFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Holds what became of a task, to be compared with what a simulation says."""

    route: str | None
    strategy: str | None
    rule: str | None
    reason: str | None
    outcome: str
    ttft_us: int | None
    tpot_us: float | None
    duration_us: int
    waited_us: int
    output_tokens: int
    cost: int
    started_us: int | None  # of the first generation, from arrival
    first_us: int | None  # its first token
    last_us: int | None = None  # its last token, where it was the only one


OnRead = Callable[[DecisionRecord, Arrival], None]


def read_records(records: Iterable[DecisionRecord], on_read: OnRead | None = None) -> Logged:
    """Makes arrivals of records, in order of time, and links turns to the answers before them.

    `on_read` hears of each as it is read.
    """
    arrivals, facts = Packed(Arrival), Packed(LoggedFacts)
    order = array("q")  # what each is sorted by
    limits: dict[str, tuple[float, Tenant]] = {}
    states: dict[str, array[int]] = {}  # of a backend: when a decision saw it, doubled; odd if well
    broken: dict[str, list[int]] = {}  # when a generation of a backend failed
    schema = 2
    num_delegating = num_handed_on = num_undecided = 0
    for record in records:
        if record.prompt_tokens is None:
            continue
        if is_undecided(record):
            num_undecided += 1
            continue
        schema = min(schema, record.schema)
        # A log is in the order in which tasks ended. Of two that arrived in the same microsecond,
        # the one that found a pool full is taken to be the later.
        found_full = record.reason == Reason.FALLBACK or record.outcome == "rate_limited"
        arrival = arrival_of(record)
        arrivals.append(arrival)
        if on_read is not None:
            on_read(record, arrival)
        facts.append(facts_of(record))
        order.append(2 * arrival.at_us + found_full)
        known = limits.get(record.tenant)
        if record.limits and (known is None or known[0] <= record.at):
            tenant = Tenant(id=record.tenant, tier=record.tier, limits=record.limits)
            limits[record.tenant] = record.at, tenant
        if record.seen is not None:
            for engine in record.seen.engines:
                seen_us = 2 * arrival.at_us + engine.healthy
                states.setdefault(engine.name, array("q")).append(seen_us)
        ran = RECORDS.get(record.strategy)  # None: a strategy that an earlier version had
        may_delegate = ran is not None and "delegations" in ran.shows
        if may_delegate and record.outcome == "ok":
            num_delegating += 1
            num_handed_on += any(each.part == "subtask" for each in record.generations)
        for each in record.generations:
            if each.state == "failed":
                at_ms = each.started_ms if each.last_ms is None else each.last_ms
                broken.setdefault(each.backend, []).append(round(record.at * _US + at_ms * 1e3))
    places = _once_each(sorted(range(len(order)), key=order.__getitem__), order, arrivals)
    facts = Packed(LoggedFacts, (facts[place] for place in places))
    arrivals = _linked(Packed(Arrival, (arrivals[place] for place in places)), facts)
    return Logged(
        arrivals,
        facts,
        {name: tenant for name, (_, tenant) in limits.items()},
        tuple(_outages(states, broken)),
        schema,
        WordOdds(hands_on=num_handed_on / max(1, num_delegating)),
        num_undecided,
        len(order) - len(places),
    )


def _once_each(
    places: Sequence[int], order: Sequence[int], arrivals: Sequence[Arrival]
) -> Sequence[int]:
    """Leaves out what was read before, as of a file and its copy: such lines have one time."""
    found: list[int] = []
    for _, group in groupby(places, key=lambda place: order[place] // 2):
        of_one_time = list(group)
        if len(of_one_time) > 1:
            by_id: dict[str, int] = {}
            for place in of_one_time:
                by_id.setdefault(arrivals[place].id, place)
            of_one_time = list(by_id.values())
        found += of_one_time
    return found


def is_undecided(record: DecisionRecord) -> bool:
    """Says whether a task was refused before a policy decided it, whichever had been in force."""
    return record.policy is None and (
        record.outcome == "invalid" or record.error == "budget_exceeded"
    )


def arrival_of(record: DecisionRecord) -> Arrival:
    """Makes an arrival of one record, which is linked to no other yet."""
    context, seen = record.context or NO_CONTEXT, record.seen
    facts = NOTHING_SEEN
    if seen is not None:
        facts = Seen(seen.gain_correction, seen.outcomes, seen.explicit, seen.drift)
    whole, at_least = _lengths(record)
    left_us = None if record.left_ms is None else round(record.left_ms * 1e3)
    if left_us is None and record.outcome == "cancelled":
        left_us = round(record.duration_ms * 1e3)
    return Arrival(
        id=record.id,
        at_us=round(record.at * _US),
        tenant=record.tenant,
        tier=record.tier,
        prompt_tokens=record.prompt_tokens or 0,
        max_output_tokens=record.max_output_tokens or 1,
        ask_tokens=record.ask_tokens or 0,
        turns=record.turns or 1,
        num_tools=record.tools or 0,
        has_images=bool(record.has_images),
        has_files=bool(record.has_files),
        generate=record.generate,
        conversation=record.conversation or "",
        shares=record.shares,
        hints=_hints(record),
        run=_run(record),
        kind=record.kind,
        text=record.text,
        p_deep=0.5 if record.p_deep is None else record.p_deep,
        p_gain=0.2 if record.p_gain is None else record.p_gain,
        p_security=record.p_security or 0.0,
        expected_output_tokens=record.expected_output_tokens or 1,
        seen=facts,
        prefix=context.prefix,
        num_items=context.items,
        brought_tokens=context.brought_tokens,
        held_tokens=context.held_tokens,
        held_turn=context.held_turn,
        last_backend=context.last_backend,
        lengths=whole,
        at_least_tokens=at_least,
        rounds=_rounds(record),
        queued_us=round((record.queued_ms or 0.0) * 1e3),
        left_us=left_us or 0,
    )


def facts_of(record: DecisionRecord) -> LoggedFacts:
    """Returns what became of a record's task."""
    started = min((each.started_ms for each in record.generations), default=None)
    first = record.generations[0].first_ms if record.generations else None
    last = record.generations[0].last_ms if len(record.generations) == 1 else None
    return LoggedFacts(
        route=record.route,
        strategy=record.strategy,
        rule=record.rule,
        reason=record.reason,
        outcome=record.outcome,
        ttft_us=None if record.ttft_ms is None else round(record.ttft_ms * 1e3),
        tpot_us=None if record.tpot_ms is None else record.tpot_ms * 1e3,
        duration_us=round(record.duration_ms * 1e3),
        waited_us=round((record.waited_ms or 0.0) * 1e3),
        output_tokens=record.output_tokens,
        cost=record.cost,
        started_us=None if started is None else round(started * 1e3),
        first_us=None if first is None else round(first * 1e3),
        last_us=None if last is None else round(last * 1e3),
    )


def _hints(record: DecisionRecord) -> Hints:
    role: AgentRole | None = record.agent_role  # type: ignore[assignment]
    strategy, options = _asked_strategy(record)
    return Hints(
        model=record.model,
        route=_ROUTES.get(record.asked_route or ""),  # None: none, or one of a newer release
        strategy=strategy,
        strategy_options=options,
        deadline_us=None if record.deadline_ms is None else round(record.deadline_ms * 1e3),
        max_wait_us=None if record.max_wait_ms is None else round(record.max_wait_ms * 1e3),
        reasoning_effort=record.reasoning_effort,
        service_tier=record.service_tier,
        metadata=record.metadata,
        agent=Agent(role=role, subagent=record.subagent, request_kind=record.request_kind),
    )


def _asked_strategy(record: DecisionRecord) -> tuple[str | None, dict[str, OptionValue]]:
    """Returns the strategy that a client asked for, and its options, as there are today.

    A log may be older than the removal of a strategy, or of one of its options.
    """
    asked = record.asked_strategy
    name = asked if asked is None else REMOVED.get(asked, asked)
    if name is None or name not in STRATEGIES:
        return None, {}
    known = STRATEGIES[name].options.__struct_fields__
    return name, {key: value for key, value in record.strategy_options.items() if key in known}


def _run(record: DecisionRecord) -> RunState:
    more = record.run or NO_RUN
    return RunState(
        strain=record.strain or 0.0,
        stuck=bool(record.run_stuck),
        num_stuck=more.stuck_times,
        calm_steps=more.calm_steps,
        num_failed=record.failed_results or 0,
        num_repeated=record.repeated_calls or 0,
        num_edits=record.edits or 0,
        tests_pass=record.tests_pass,
        dissatisfied=bool(record.dissatisfied),
        goes_on=more.goes_on,
        wants_more=more.wants_more,
        gives_thanks=more.gives_thanks,
        was_thanked=more.was_thanked,
        answers_tools=bool(record.answers_tools),
        num_tokens=more.tokens,
    )


def _lengths(
    record: DecisionRecord,
) -> tuple[tuple[tuple[BackendGroup, AnswerLength], ...], int]:
    """Returns the lengths of whole answers by group, and the longest that was cut off."""
    groups = {usage.backend: usage.group for usage in record.usage}
    parts = [each.part for each in record.generations]
    whole: dict[BackendGroup, AnswerLength] = {}
    at_least = 0
    for each in record.generations:
        group = groups.get(each.backend)
        # A sub-task is what the deep engine says of the ask; who hands none on answers by itself.
        is_whole = each.part in WHOLE_PARTS or (
            each.part == "subtask" if "subtask" in parts else each.part == "converse"
        )
        if group is None or not is_whole:
            continue
        if each.state == "finished":
            length = AnswerLength(each.output_tokens, each.reasoning_tokens)
            whole.setdefault(group, length)
        else:
            at_least = max(at_least, each.output_tokens)
    if not record.generations:  # schema 1
        for usage in record.usage:
            if record.outcome == "ok" and usage.backend == record.answered_by:
                whole[usage.group] = AnswerLength(usage.output_tokens)
            else:
                at_least = max(at_least, usage.output_tokens)
    return tuple(whole.items()), 0 if whole else at_least


def _rounds(record: DecisionRecord) -> tuple[int, ...]:
    """Returns the tokens of the rounds of a task that handed a sub-task on, in order."""
    if not any(each.part == "subtask" for each in record.generations):
        return ()
    return tuple(each.output_tokens for each in record.generations if each.part == "converse")


def _linked(arrivals: Packed[Arrival], facts: Sequence[LoggedFacts]) -> Packed[Arrival]:
    """Links each turn to the answer that it continues, by the prefixes of their prompts."""
    by_end: dict[int, int] = {}  # the hash of a whole prompt -> its latest task
    follows: dict[int, tuple[int, int]] = {}  # the task before, and the time to think
    ends: dict[int, tuple[int, int]] = {}  # prefixes of prompts with their answers
    for index, arrival in enumerate(arrivals):
        for position in range(len(arrival.prefix) - 2, -1, -1):
            before = by_end.get(arrival.prefix[position][0])
            if before is None:
                continue
            ended_us = arrivals[before].at_us + facts[before].duration_us
            # A turn that was sent before that answer's end queued for it in its stream.
            think_us = max(arrival.at_us - ended_us, -arrival.queued_us)
            if facts[before].outcome == "ok" and ended_us + think_us <= arrival.at_us + 1_000:
                ends[before] = arrival.prefix[position + 1]
                follows[index] = before, think_us
            break
        if arrival.prefix:
            by_end[arrival.prefix[-1][0]] = index

    def linked(index: int, arrival: Arrival) -> Arrival:
        if index not in follows and index not in ends:
            return arrival
        before, think_us = follows.get(index, (-1, 0))
        return msgspec.structs.replace(
            arrival, end_prefix=ends.get(index), follows=before, think_us=think_us
        )

    return Packed(Arrival, (linked(*each) for each in enumerate(arrivals)))


def _outages(
    states: Mapping[str, Sequence[int]], broken: Mapping[str, list[int]]
) -> Iterable[Outage]:
    """Finds when each backend was out, as far as decisions saw it, and whether tasks failed."""
    for name, rows in states.items():
        began_us: int | None = None
        for row in [*sorted(rows), rows[-1] + 2 * _US | 1]:
            at_us, healthy = divmod(row, 2)
            if not healthy and began_us is None:
                began_us = at_us - 1
            elif healthy and began_us is not None:
                first_us = began_us - NOTICED_US
                breaks = any(first_us <= each <= at_us for each in broken.get(name, ()))
                yield Outage(name, began_us, at_us - 1, breaks)
                began_us = None
