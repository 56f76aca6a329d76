"""Back-tests policies against the one that made a log, and says what would be different.

`back_test` first replays the log under its own policy; how far that is off is the error that every
comparison carries. Everything it returns is data: `report.py` writes it down.
"""

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

import msgspec
import numpy as np

from backends.contract import BackendGroup
from router.backtest.arrivals import Arrival
from router.backtest.fleet import EngineFleet
from router.backtest.lengths import WordOdds, learn_lengths, sources
from router.backtest.log_reader import Logged
from router.backtest.results import EngineTotal, PoolSample, TaskResult, Totals
from router.backtest.simulation import Scenario, simulate
from router.classify.task import Tenant
from router.comparison.redecide import Redecided
from router.comparison.statistics import (
    FIGURES,
    HIGH,
    LOW,
    Difference,
    Slo,
    TaskSummary,
    differences,
    intervals,
    summarise,
)
from router.comparison.table import ResultTable, logged_table
from router.comparison.what_if import Untestable, scaled, without_untestable
from router.money.cost import Weights
from router.money.prices import PriceList
from router.policy.policy import Policy
from router.strategies.table import RECORDS
from router.waiting.rules import AdaptationConfig, WaitingConfig

NO_WAIT_US = 100_000  # until its pools answered: a task that took longer may have queued
MAX_GROUPS = 20  # tenants, ways and moves that are told apart

Progress = Callable[[str, int, int], None]  # what is simulated, ended tasks, of all


class BacktestQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is asked: a log, its policy, others, and what else is to be different."""

    logged: Logged
    base: Policy  # that made the log
    policies: dict[str, Policy] = {}  # by the name to show
    fleet: EngineFleet
    tenants: Mapping[str, Tenant] = {}  # of configured ones; the log's own limits go first
    weights: Weights = {}
    prices: PriceList = PriceList()
    ceilings: dict[BackendGroup, int] = {}  # tasks at once on a group, of all tenants
    waiting: WaitingConfig = WaitingConfig()
    adaptation: AdaptationConfig = AdaptationConfig()
    odds: WordOdds | None = None  # None: as far as the log shows them
    slo: Slo = Slo()
    redecided: Redecided = msgspec.field(default_factory=Redecided)
    versions: dict[str, int] = {}  # tasks of the log by the policy that decided them
    scale: float = 1.0
    slow: dict[str, float] = {}  # speed by backend
    without: frozenset[str] = frozenset()
    seed: int = 0

    @property
    def changes_the_world(self) -> bool:
        """Says whether more than the policy is different."""
        return self.scale != 1 or bool(self.slow) or bool(self.without)


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """Says how well the log's own policy, simulated, comes to what the log says."""

    policy: str
    made: float = 1.0  # share of the log's decisions that are this policy's
    num_tasks: int
    decided_same: float | None  # share, from the facts that each decision saw
    num_decided: int
    routed_same: float  # share, with engines and pools simulated, too
    off_by: dict[str, float]  # of each figure, as a share of it
    overhead_ms: float  # of the gateway before an engine starts, as the log has it
    delivery_ms: float  # behind an engine's first token
    ending_ms: float = 0.0  # behind its last


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Counts tasks that go another way than before."""

    before: str
    after: str
    rule: str  # or reason, by which they go there
    num_tasks: int


class ComparedPart(msgspec.Struct, frozen=True, kw_only=True):
    """Sums up the tasks of one tenant, or of one way, before and after."""

    name: str
    before: TaskSummary
    after: TaskSummary


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what one policy would have come to."""

    name: str
    before: TaskSummary  # of what it is compared with
    before_energy_kj: float
    summary: TaskSummary
    differences: tuple[Difference, ...]
    moved: tuple[Moved, ...]
    num_moved: int
    tenants: tuple[ComparedPart, ...]
    ways: tuple[ComparedPart, ...]
    limits: dict[str, int]  # refusals by pool
    waits: dict[str, int]  # tasks that waited, by group
    engines: tuple[EngineTotal, ...]
    pools: tuple[PoolSample, ...]
    energy_kj: float
    untestable: tuple[Untestable, ...]
    intervals: dict[str, tuple[float, float]]  # 90 %, of each figure by itself
    latency_curve: tuple[float, ...]  # ms, at every whole percent of the answered tasks
    worsens_slo: bool  # its share is lower, and that was seen


class BacktestReport(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a whole back-test."""

    first_at: str  # UTC
    span_s: float
    num_tasks: int
    schema: int
    slo: Slo
    what_if: str  # empty: nothing but the policies is different
    replay: Replayed
    logged: TaskSummary
    logged_curve: tuple[float, ...]
    before: Tested  # what the others are compared with
    policies: tuple[Tested, ...]
    lengths: dict[str, int]  # tasks whose length on the other engine came from where
    notes: tuple[str, ...]

    @property
    def first_line(self) -> str:
        """Says how far a replay can be believed."""
        replay = self.replay
        made = "the log" if replay.made == 1 else f"{replay.made:.1%} of the log"
        said = f"Replay under {replay.policy!r}, which made {made}: "
        if replay.decided_same is not None:
            said += f"{replay.decided_same:.1%} of {replay.num_decided} decisions are the same, "
            said += f"{replay.routed_same:.1%} with engines and pools simulated, too"
        else:
            said += f"{replay.routed_same:.1%} of {replay.num_tasks} tasks go the same way"
        off = replay.off_by
        figures = {
            "mean latency": "latency_ms_mean",
            "p95": "latency_ms_p95",
            "tokens": "output_tokens",
        }
        told = [f"{name} {off[key]:+.1%}" for name, key in figures.items() if key in off]
        return f"{said}; {', '.join(told)}." if told else f"{said}."


def back_test(question: BacktestQuestion, on_progress: Progress | None = None) -> BacktestReport:
    """Simulates the log's own policy, then each other.

    Raises ValueError if the log has no task, a backend that is to be changed does not exist, or
    the seed is below 0.
    """
    if question.seed < 0:
        raise ValueError(f"seed {question.seed}: expected a whole number from 0")
    logged = question.logged
    if not logged.arrivals:
        raise ValueError("the log has no task that reached the router")
    return _Backtest(question, on_progress).report()


class _Backtest:
    def __init__(self, question: BacktestQuestion, on_progress: Progress | None) -> None:
        self._asked = question
        self._on_progress = on_progress
        logged = question.logged
        self._arrivals: Sequence[Arrival] = logged.arrivals
        self._lengths = learn_lengths(logged.arrivals)
        self._infos = {each.info.name: each.info for each in question.fleet.machines}
        self._tenants = dict(question.tenants) | logged.tenants
        self._own = own_times(logged)
        self._ways: set[str] = set()  # that tasks took, in any simulation
        self._has_text = all(arrival.text is not None for arrival in logged.arrivals)
        self._names = question.base.metadata_names if logged.schema >= 2 else frozenset[str]()

    def report(self) -> BacktestReport:
        """Runs everything."""
        asked, logged = self._asked, self._asked.logged
        fleet = msgspec.structs.replace(asked.fleet, outages=logged.outages)
        base, base_untestable = self._testable(asked.base)
        replayed, totals = self._play(base, asked.base.version, fleet, self._arrivals)
        truth = logged_table(logged)
        said, curve = summarise(truth, asked.slo), _curve(truth)
        said = msgspec.structs.replace(said, waited=None, money_usd=None)  # it does not say them
        replay = self._replayed(truth, said, replayed)
        del truth  # a table of a long log is megabytes
        arrivals, scene, before = self._arrivals, fleet, (replayed, totals)
        tested_before = self._tested(asked.base.version, before, before, replay, base_untestable)
        tested: list[Tested] = []
        if asked.changes_the_world:
            arrivals = scaled(self._arrivals, asked.scale, asked.seed)
            if not arrivals:
                raise ValueError(f"at {asked.scale:g} times the traffic no task of the log is left")
            scene = fleet.slowed(asked.slow)
            if asked.without:
                scene = scene.without(asked.without)
            name = f"{asked.base.version}, {self._what_if()}"
            changed = self._play(base, name, scene, arrivals)
            # In other traffic no task is the same as before.
            same_tasks = asked.scale == 1
            tested.append(
                self._tested(name, before, changed, replay, base_untestable, same_tasks=same_tasks)
            )
            before = changed
        for name, policy in asked.policies.items():
            able, untestable = self._testable(policy)
            played = self._play(able, name, scene, arrivals)
            tested.append(self._tested(name, before, played, replay, untestable))
        first_us, last_us = self._arrivals[0].at_us, self._arrivals[-1].at_us
        counted = sources(self._arrivals, self._lengths)
        return BacktestReport(
            first_at=_utc(first_us),
            span_s=(last_us - first_us) / 1e6,
            num_tasks=len(self._arrivals),
            schema=logged.schema,
            slo=asked.slo,
            what_if=self._what_if() if asked.changes_the_world else "",
            replay=replay,
            logged=said,
            logged_curve=curve,
            before=tested_before,
            policies=tuple(tested),
            lengths={str(name): count for name, count in counted.items()},
            notes=tuple(self._notes()),
        )

    def _testable(self, policy: Policy) -> tuple[Policy, tuple[Untestable, ...]]:
        return without_untestable(policy, has_text=self._has_text, metadata_names=self._names)

    def _play(
        self, policy: Policy, name: str, fleet: EngineFleet, arrivals: Sequence[Arrival]
    ) -> tuple[ResultTable, Totals]:
        asked, infos = self._asked, self._infos
        table = ResultTable(len(arrivals))

        def take(result: TaskResult) -> None:
            table.add(result, infos, asked.prices)

        def progress(ended: int, all_of_them: int) -> None:
            if self._on_progress is not None:
                self._on_progress(name, ended, all_of_them)

        scenario = Scenario(
            policy=policy,
            fleet=fleet,
            tenants=self._tenants,
            weights=asked.weights,
            ceilings=asked.ceilings,
            waiting=asked.waiting,
            adaptation=asked.adaptation,
            lengths=self._lengths,
            odds=asked.odds or asked.logged.odds,
            overhead_us=self._own.before_us,
            delivery_us=self._own.behind_us,
            ending_us=self._own.ending_us,
            seed=asked.seed,
        )
        totals = simulate(arrivals, scenario, take, progress)
        self._ways |= {table.names[number] for number in set(table.way)}
        return table, totals

    def _replayed(self, truth: ResultTable, was: TaskSummary, table: ResultTable) -> Replayed:
        asked, now = self._asked, summarise(table, self._asked.slo)
        same = sum(
            truth.name_of("way", index) == table.name_of("way", index)
            for index in range(len(table))
        )
        off_by: dict[str, float] = {}
        for name in ("latency_ms_mean", *FIGURES):
            old, new = getattr(was, name), getattr(now, name)
            if old and new is not None:
                off_by[name] = (new - old) / old
        return Replayed(
            policy=asked.base.version,
            made=self._made,
            num_tasks=len(table),
            decided_same=asked.redecided.share,
            num_decided=asked.redecided.num_tasks,
            routed_same=same / len(table),
            off_by=off_by,
            overhead_ms=self._own.before_us / 1e3,
            delivery_ms=self._own.behind_us / 1e3,
            ending_ms=self._own.ending_us / 1e3,
        )

    def _tested(
        self,
        name: str,
        compared: tuple[ResultTable, Totals],
        played: tuple[ResultTable, Totals],
        replay: Replayed,
        untestable: tuple[Untestable, ...],
        *,
        same_tasks: bool = True,
    ) -> Tested:
        asked, (before, before_totals), (table, totals) = self._asked, compared, played
        found: list[Difference] = []
        moved: tuple[Moved, ...] = ()
        if table is not before and same_tasks:
            found = differences(before, table, asked.slo, replay.off_by, asked.seed)
            moved = _moved(before, table)
        slo = next((each for each in found if each.figure == "slo_met"), None)
        return Tested(
            name=name,
            before=summarise(before, asked.slo),
            before_energy_kj=before_totals.energy_j / 1e3,
            summary=summarise(table, asked.slo),
            differences=tuple(found),
            moved=moved[:MAX_GROUPS],
            num_moved=sum(each.num_tasks for each in moved),
            tenants=_parts(before, table, "tenant", asked.slo),
            ways=_parts(before, table, "way", asked.slo),
            limits=_counts(table, "limited_by"),
            waits=_counts(table, "waited_for"),
            engines=totals.engines,
            pools=totals.pools,
            energy_kj=totals.energy_j / 1e3,
            untestable=untestable,
            intervals=intervals(
                table, asked.slo, asked.seed, replay.off_by, self._own.spread_us / 1e3
            ),
            latency_curve=_curve(table),
            worsens_slo=slo is not None and slo.seen and slo.change < 0,
        )

    @property
    def _made(self) -> float:
        """Returns the share of the log's decisions that the base policy made."""
        versions = self._asked.versions
        num_own = versions.get(self._asked.base.version, 0)
        return num_own / sum(versions.values()) if versions else 1.0

    def _what_if(self) -> str:
        asked = self._asked
        said = [f"{asked.scale:g} times the traffic"] if asked.scale != 1 else []
        said += [f"{name} at {speed:g} of its speed" for name, speed in asked.slow.items()]
        said += [f"without {name}" for name in sorted(asked.without)]
        return ", ".join(said)

    def _notes(self) -> Iterable[str]:
        logged, asked = self._asked.logged, self._asked
        if logged.schema < 2:
            yield (
                "Lines of schema 1 lack what decisions saw, prefixes, limits and generations: "
                "caches are empty and turns are not linked."
            )
        if logged.outages:
            names = sorted({outage.backend for outage in logged.outages})
            yield f"Outages in the log are played again: {', '.join(names)}."
        others = sorted(asked.versions.keys() - {asked.base.version})
        if others:
            told = ", ".join(f"{name} ({asked.versions[name]:,})" for name in others[:10])
            yield (
                f"Other policies decided some of the log's tasks, {told}; those are replayed under "
                f"{asked.base.version!r}, too. `--last` takes a part of the log."
            )
        if logged.num_undecided:
            yield (
                f"Left out: {logged.num_undecided:,} tasks that no policy decided, since they were "
                "their client's mistake, or over a budget in money."
            )
        if logged.num_again:
            yield f"Left out: {logged.num_again:,} lines of tasks that were read before."
        unknown = {arrival.tenant for arrival in self._arrivals} - set(self._tenants)
        if unknown:
            yield f"Tenants without known limits are refused: {', '.join(sorted(unknown)[:10])}."
        handed_on = (asked.odds or logged.odds).hands_on
        for name, record in RECORDS.items():
            if record.simulated_as and any(way.endswith(f" ({name})") for way in self._ways):
                yield record.simulated_as.format(handed_on=handed_on)
        yield (
            "Compactions, and failures of single requests, are not simulated; "
            "learned corrections and drift stay as the log has them."
        )


class OwnTimes(msgspec.Struct, frozen=True):
    """Holds a gateway's own time: medians, and how far tasks are from them."""

    before_us: int  # an engine starts
    behind_us: int  # an engine's first token
    ending_us: int  # behind its last
    spread_us: float  # half of what 90 % of the tasks' own times to the first token lie within


def own_times(logged: Logged) -> OwnTimes:
    """Returns the gateway's own time before an engine starts, and behind its tokens.

    A task that is late at one place mostly is at others, so the sums have their own medians.
    """
    before: list[int] = []
    to_first: list[int] = []
    to_end: list[int] = []
    for arrival, facts in zip(logged.arrivals, logged.facts, strict=True):
        if facts.started_us is None or facts.waited_us >= NO_WAIT_US:
            continue
        own_us = facts.started_us - arrival.queued_us
        before.append(own_us)
        if facts.strategy is not None:
            continue
        if facts.ttft_us is not None and facts.first_us is not None:
            to_first.append(own_us + facts.ttft_us - facts.first_us)
        if facts.outcome == "ok" and facts.last_us is not None:
            to_end.append(own_us + facts.duration_us - facts.last_us)
    before_us, first_us, end_us = (
        max(0, round(median(each))) if each else 0 for each in (before, to_first, to_end)
    )
    low, high = np.percentile(to_first, (LOW, HIGH)) if to_first else (0.0, 0.0)
    behind_us, ending_us = max(0, first_us - before_us), max(0, end_us - before_us)
    return OwnTimes(before_us, behind_us, ending_us, float(high - low) / 2)


def _moved(before: ResultTable, after: ResultTable) -> tuple[Moved, ...]:
    counts: Counter[tuple[str, str, str]] = Counter()
    for index in range(len(after)):
        was, now = before.name_of("way", index), after.name_of("way", index)
        if was != now:
            counts[was, now, after.name_of("rule", index)] += 1
    return tuple(
        Moved(before=was, after=now, rule=rule, num_tasks=count)
        for (was, now, rule), count in counts.most_common()
    )


def _parts(
    before: ResultTable, after: ResultTable, column: str, slo: Slo
) -> tuple[ComparedPart, ...]:
    names = Counter(after.name_of(column, index) for index in range(len(after)))
    names.update(before.name_of(column, index) for index in range(len(before)))
    return tuple(
        ComparedPart(
            name=name,
            before=summarise(before, slo, before.having(column, name)),
            after=summarise(after, slo, after.having(column, name)),
        )
        for name, _ in names.most_common(MAX_GROUPS)
        if name
    )


def _counts(table: ResultTable, column: str) -> dict[str, int]:
    names = Counter(table.name_of(column, index) for index in range(len(table)))
    del names[""]
    return dict(names.most_common(MAX_GROUPS))


def _curve(table: ResultTable) -> tuple[float, ...]:
    latencies = table.column("duration_us")[table.is_answered] / 1e3
    if not len(latencies):
        return ()
    return tuple(round(float(value), 3) for value in np.percentile(latencies, np.arange(1, 100)))


def _utc(unix_us: int) -> str:
    at = datetime.datetime.fromtimestamp(unix_us // 1_000_000, datetime.UTC)
    return at.strftime("%Y-%m-%d %H:%M:%SZ")
