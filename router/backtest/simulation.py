"""Simulates a gateway on a heap of events: production's functions, in production's order.

    arrive   weigh, rank                     as the gateway's `rank_task`
    admit    demands, pools, decide          with the rules of the waiting queues
    run      the strategy's machine          over engines in virtual time
    settle   the pools get what was used     exactly once
    record   one `TaskResult`

`simulate` is the whole interface: arrivals and a scenario in, results out. Nothing here reads a
clock; times are in microseconds of Unix time.
"""

import heapq
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count

import msgspec

from backends.contract import (
    BackendGroup,
    BackendStats,
    Finish,
    FinishReason,
)
from router.backtest.arrivals import Arrival
from router.backtest.engines import EngineClock
from router.backtest.fleet import EngineFleet, Outage
from router.backtest.lengths import Guess, Lengths, WordOdds
from router.backtest.life import Life
from router.backtest.pool_samples import PoolSamples
from router.backtest.queueing import Queueing
from router.backtest.results import EngineTotal, OnResult, TaskResult, Totals
from router.backtest.run import PlayedRun
from router.backtest.settlements import Settlements
from router.classify.task import Tenant
from router.decide.adaptive_capacity import STEP_US, AdaptiveCapacity
from router.decide.admission import decide, demands
from router.decide.continuity import conversation_state, may_move
from router.decide.decision import RankedRoute, Refusal
from router.decide.ranking import rank
from router.decide.weighing import Facts, weigh
from router.learn.experience import Experience
from router.money.cost import Weights
from router.policy.policy import Policy
from router.pools.pools import Demand, Grant
from router.waiting.rules import AdaptationConfig, WaitingConfig

MAX_HOLDERS = 16_384  # conversations whose last backend is remembered
PROGRESS_EVERY = 500  # tasks

Progress = Callable[[int, int], None]  # ended tasks, of all


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Holds all that a back-test varies."""

    policy: Policy
    fleet: EngineFleet
    tenants: Mapping[str, Tenant]  # by id; tasks of others are refused
    weights: Weights = {}
    ceilings: dict[BackendGroup, int] = {}  # tasks at once on a group, of all tenants
    waiting: WaitingConfig = WaitingConfig()
    adaptation: AdaptationConfig = AdaptationConfig()
    lengths: Lengths = Lengths()
    odds: WordOdds = WordOdds()
    overhead_us: int = 0  # of the gateway, from a task's arrival to its engine
    delivery_us: int = 0  # of the gateway, from an engine's first token to the client
    ending_us: int = 0  # of the gateway, from an engine's last token to the answer's end
    seed: int = 0


def simulate(
    arrivals: Sequence[Arrival],
    scenario: Scenario,
    on_result: OnResult,
    on_progress: Progress | None = None,
) -> Totals:
    """Runs all arrivals, which come in order of time, to their ends.

    `on_result` takes each task's result as it ends. Raises ValueError without a backend.
    """
    if not scenario.fleet.machines:
        raise ValueError("a back-test needs at least one backend")
    simulation = _Simulation(arrivals, scenario, on_result, on_progress)
    try:
        return simulation.run()
    finally:  # its parts refer back to it, and would stay until cycles are looked for
        vars(simulation).clear()


class _Simulation:
    def __init__(
        self,
        arrivals: Sequence[Arrival],
        scenario: Scenario,
        on_result: OnResult,
        on_progress: Progress | None,
    ) -> None:
        self._arrivals = arrivals
        self._scenario = scenario
        self._on_result = on_result
        self._on_progress = on_progress
        self._policies = {
            tenant_id: scenario.policy.for_tenant(tenant_id) for tenant_id in scenario.tenants
        }
        self.now_us = arrivals[0].at_us if arrivals else 0
        self._last_us = self.now_us
        self._heap: list[tuple[int, int, Callable[[], None] | EngineClock]] = []
        self._order = count()
        self.engines = {
            machine.info.name: EngineClock(machine, self._wake_engine)
            for machine in scenario.fleet.machines
        }
        self._clocks = list(self.engines.values())
        self._experience = Experience()
        self._queueing = Queueing(scenario.waiting, scenario.policy.wait_ms, self)
        self._limiter = self._queueing.limiter
        self._capacity: AdaptiveCapacity | None = None
        self._live: dict[str, Life] = {}  # by task
        weights, ceilings = scenario.weights, scenario.ceilings
        self.settlements = Settlements(self, self._queueing, weights, self._live, ceilings)
        self.reserve_part = self.settlements.reserve_part
        self.settle_part = self.settlements.settle_part
        self.group_done = self.settlements.group_done
        self._holders: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._followers: dict[int, list[tuple[int, int]]] = {}  # and how much later they start
        # These are the tasks that follow no other, and when they start: not in the order in which
        # they arrived, as some queue behind others of their stream.
        indexes, starts_us = array("q"), array("q")
        for index, arrival in enumerate(arrivals):
            later_us = arrival.queued_us + scenario.overhead_us
            if arrival.follows >= 0:
                after = index, arrival.think_us + later_us
                self._followers.setdefault(arrival.follows, []).append(after)
            else:
                indexes.append(index)
                starts_us.append(arrival.at_us + later_us)
        places = sorted(range(len(indexes)), key=starts_us.__getitem__)
        self._indexes = array("q", (indexes[place] for place in places))
        self._starts_us = array("q", (starts_us[place] for place in places))
        self._answered_by: dict[int, str] = {}  # of tasks that others follow
        self._num_ended = 0
        # Each backend has its tokens of input, those of them that were cached, and those of output.
        self._used = {name: [0, 0, 0] for name in self.engines}
        self._samples = PoolSamples()

    # The heap.

    def run(self) -> Totals:
        """Handles every event in order of time."""
        scenario, heap = self._scenario, self._heap
        first_us = self.now_us
        for outage in scenario.fleet.outages:
            if outage.backend in self.engines:
                self.at(outage.from_us, partial(self._take_out, outage))
                self.at(outage.until_us, self.engines[outage.backend].open)
        if scenario.adaptation.groups:
            self._capacity = AdaptiveCapacity(
                scenario.adaptation,
                scenario.waiting,
                self._limiter,
                self._queueing.wanting,
                self.stats(),
                self.now_us,
            )
            self.at(self.now_us + STEP_US, self._adapt)
        coming = zip(self._starts_us, self._indexes, strict=True)
        arrives_us, index = next(coming, (None, -1))
        while heap or arrives_us is not None:
            if arrives_us is not None and (not heap or arrives_us <= heap[0][0]):
                if arrives_us > self.now_us:
                    self.now_us = arrives_us
                self._arrive(index, arrives_us)
                arrives_us, index = next(coming, (None, -1))
                continue
            time_us, _, what = heapq.heappop(heap)
            if isinstance(what, EngineClock):
                if what.wake_us == time_us:  # else it was to be looked at then, and is no more
                    if time_us > self.now_us:
                        self.now_us = time_us
                    what.wake_us = None
                    what.wake(self.now_us)
                continue
            if time_us > self.now_us:
                self.now_us = time_us
            what()
        return self._totals(first_us)

    def at(self, time_us: int, call: Callable[[], None]) -> None:
        """Calls back at a time."""
        heapq.heappush(self._heap, (time_us, next(self._order), call))

    def _wake_engine(self, engine: EngineClock, wake_us: int) -> None:
        heapq.heappush(self._heap, (wake_us, next(self._order), engine))

    def _take_out(self, outage: Outage) -> None:
        self.engines[outage.backend].close(self.now_us, breaks=outage.breaks)

    # Arrival and admission.

    def stats(self) -> list[BackendStats]:
        return [engine.known or engine.stats() for engine in self._clocks]

    def _arrive(self, index: int, started_us: int) -> None:
        arrival = self._arrivals[index]
        arrived_us = started_us - arrival.queued_us - self._scenario.overhead_us
        tenant = self._scenario.tenants.get(arrival.tenant)
        if tenant is None:
            self._refuse_unknown(index, arrival, arrived_us)
            return
        policy, stats = self._policies[tenant.id], self.stats()
        task = arrival.task(tenant, arrived_us, self._holder(arrival), {})
        if may_move(task.run):
            also_held = self._experience.also_held(task)
            task = msgspec.structs.replace(task, also_held=also_held)
        task_class = arrival.task_class(policy.band)
        seen = arrival.seen
        facts = Facts(
            conversation=conversation_state(task, stats),
            gain_correction=seen.gain_correction,
            num_outcomes=seen.num_outcomes,
            explicit=seen.explicit,
            shares_left=self._experience.shares_left(tenant.id, self.now_us),
            backend_speeds=self._experience.backend_speeds,
            alarms=seen.alarms,
        )
        task_class = weigh(policy.tradeoff, policy.band, task, task_class, stats, facts)
        ranked = rank(policy, task, task_class, stats)
        life = Life(index, arrival, task, task_class, policy, arrived_us)
        self._live[task.id] = life
        if arrival.left_us:
            self.at(arrived_us + arrival.left_us, lambda: self._leave(life))
        if isinstance(ranked, Refusal):
            self.end_refused(life, ranked.code, None)
            return
        asked = demands(task, task_class, ranked, self._scenario.weights)
        self._queueing.admit(_TaskApplicant(self, life, ranked, asked, started_us))

    def _holder(self, arrival: Arrival) -> str | None:
        if arrival.follows >= 0:
            return self._answered_by.get(arrival.follows, arrival.last_backend)
        if arrival.turns > 1 or arrival.last_backend is not None:
            known = self._holders.get((arrival.tenant, arrival.conversation))
            return known or arrival.last_backend
        return None

    def decided(self, life: Life, routes: tuple[RankedRoute, ...], grant: Grant) -> None:
        task, policy = life.task, life.policy
        decision = decide(task, life.task_class, routes, grant, policy, self._scenario.weights)
        life.ranked = routes
        if decision.balances:
            now_us = self.now_us
            left = self._experience.note_balances(task.tenant.id, decision.balances, now_us)
            self._samples.note_shares(left, now_us)
        chosen, reservation = decision.chosen, decision.reservation
        if chosen is None or reservation is None:
            assert decision.refusal is not None
            self.end_refused(life, decision.refusal.code, grant)
            return
        life.reservation = reservation
        tuned = chosen.tuned(self._experience.backend_speeds.late_words_us)
        guess = Guess(
            life.arrival, self._scenario.lengths, self._scenario.odds, self._scenario.seed
        )
        life.run = PlayedRun(self, life, task, tuned, guess)
        self.settlements.begin()
        life.run.start()

    def run_over(self, run: PlayedRun, finish: Finish | None) -> None:
        """Settles and records a task whose answer has ended."""
        life = run.owner
        assert isinstance(life, Life)
        run.close()
        failed = finish is not None and finish.reason is FinishReason.ERROR
        outcome = "cancelled" if finish is None else "error" if failed else "ok"
        self.settlements.settle(life)
        if outcome == "ok":
            self._note_end(life, run)
        self._end(life, outcome)

    def _note_end(self, life: Life, run: PlayedRun) -> None:
        speeds = self._experience.backend_speeds
        machine_is_transparent = run.chosen.strategy is None
        for branch in run.branches.values():
            if branch.first_us < 0:
                continue
            tpot_us, name = branch.tpot_us, branch.where.name
            words_us = branch.first_us - branch.started_us
            if tpot_us is not None and not branch.cancelled:
                speeds.note(name, words_us if words_us > 0 else 0, tpot_us)
            if branch.num_continuations:
                continue
            if branch.reasoning_tokens and tpot_us is not None:
                words_us += round(branch.reasoning_tokens * tpot_us)
            if machine_is_transparent or branch.num_tokens > branch.reasoning_tokens:
                speeds.note_words(name, words_us if words_us > 0 else 0)
        answered_by = run.answered_by or run.backends[-1]
        self._experience.note_held(life.task, answered_by)
        if self._capacity is not None and run.first_branch is not None:
            first = run.first_branch
            self._capacity.observe(first.where.info.group, first.tpot_us, self.now_us)
        key = (life.arrival.tenant, life.arrival.conversation)
        self._holders[key] = answered_by
        self._holders.move_to_end(key)
        if len(self._holders) > MAX_HOLDERS:
            self._holders.popitem(last=False)

    # Ends.

    def _leave(self, life: Life) -> None:
        """Ends a task whose client has gone."""
        if life.ended:
            return
        run = life.run
        if run is None:
            self._queueing.leave(life.task.id)
            self._end(life, "cancelled")
            return
        run.close()
        self.settlements.settle(life)
        self._end(life, "cancelled")

    def end_refused(self, life: Life, code: str, grant: Grant | None) -> None:
        outcome = "invalid"
        if code == "rate_limit_exceeded":
            outcome = "rate_limited"
        elif code == "server_is_overloaded":
            outcome = "shed"
        if grant is not None:
            life.limited_by = grant.limited_by
            if grant.limited_by is not None:
                self._samples.note_refusal(grant.limited_by[0], self.now_us)
        life.waited_us = max(life.waited_us, self.now_us - life.arrived_us)
        self._end(life, outcome)

    def _refuse_unknown(self, index: int, arrival: Arrival, arrived_us: int) -> None:
        self._report(
            TaskResult(
                index=index,
                at_us=arrived_us,
                tenant=arrival.tenant,
                label="",
                route=None,
                reason="access",
                outcome="invalid",
                duration_us=0,
            )
        )

    def _end(self, life: Life, outcome: str) -> None:
        if life.ended:
            return
        life.ended = True
        self._live.pop(life.task.id, None)
        scenario = self._scenario
        delays = scenario.delivery_us, scenario.ending_us
        result = life.result(outcome, self.now_us, scenario.weights, *delays)
        if life.run is not None:  # else life and run keep each other, until cycles are looked for
            life.run.forget()
            life.run = None
        for name, usage in result.usage:
            used = self._used[name]
            used[0] += usage.num_input_tokens
            used[1] += usage.num_cached_tokens
            used[2] += usage.num_output_tokens
        self._report(result)

    def _report(self, result: TaskResult) -> None:
        self._num_ended += 1
        self._last_us = max(self._last_us, self.now_us)
        self._on_result(result)
        for follower, later_us in self._followers.pop(result.index, ()):
            if result.answered_by is not None:
                self._answered_by[result.index] = result.answered_by
            starts_us = result.at_us + result.duration_us + later_us
            self.at(starts_us, partial(self._arrive, follower, starts_us))
        if self._on_progress is not None and self._num_ended % PROGRESS_EVERY == 0:
            self._on_progress(self._num_ended, len(self._arrivals))

    # Timers.

    def _adapt(self) -> None:
        assert self._capacity is not None
        for group in self._scenario.adaptation.groups:
            self._capacity.step(group, self.stats(), self.now_us)
            self._queueing.look_again(group)
        if self._num_ended < len(self._arrivals):
            self.at(self.now_us + STEP_US, self._adapt)

    # Queues report here.

    def note_waiting(self, group: BackendGroup, num_waiting: int) -> None:
        """Notes how many tasks wait for a group."""
        self._samples.note_waiting(group, num_waiting, self.now_us)

    def _totals(self, first_us: int) -> Totals:
        engines = tuple(
            EngineTotal(
                name=name,
                model=engine.info.model,
                group=engine.info.group,
                busy_us=engine.busy_us,
                power_w=engine.machine.power_w,
                input_tokens=self._used[name][0],
                cached_tokens=self._used[name][1],
                output_tokens=self._used[name][2],
            )
            for name, engine in self.engines.items()
        )
        return Totals(
            num_tasks=self._num_ended,
            first_us=first_us,
            last_us=self._last_us,
            engines=engines,
            pools=self._samples.rows(),
        )


class _TaskApplicant:
    """Is a task that asks to be admitted."""

    __slots__ = (
        "_asked",
        "_life",
        "_ranked",
        "_simulation",
        "_started_us",
        "groups",
        "task",
        "tokens",
    )

    def __init__(
        self,
        simulation: _Simulation,
        life: Life,
        ranked: tuple[RankedRoute, ...],
        asked: tuple[tuple[Demand, ...], ...],
        started_us: int,
    ) -> None:
        self._simulation = simulation
        self._life = life
        self._ranked = ranked
        self._asked = asked
        self._started_us = started_us
        self.task = life.task
        self.tokens = asked[0][0].tokens
        groups = ranked[0].route.groups
        if len(groups) == 1 and len(ranked) > 1:
            groups = tuple(dict.fromkeys([group for each in ranked for group in each.route.groups]))
        self.groups = groups

    def attempt(self, has_waited: bool) -> tuple[tuple[RankedRoute, ...], Grant] | None:
        simulation, life = self._simulation, self._life
        if not has_waited:
            return simulation.settlements.reserve(life, self._ranked, self._asked)
        # The engines are not what they were.
        routes = rank(life.policy, life.task, life.task_class, simulation.stats())
        if isinstance(routes, Refusal):
            simulation.end_refused(life, routes.code, None)
            return None
        return simulation.settlements.reserve(life, routes, None)

    def answered(
        self, routes: tuple[RankedRoute, ...], grant: Grant, waited_for: BackendGroup | None
    ) -> None:
        life, simulation = self._life, self._simulation
        life.waited_for = waited_for
        life.waited_us = simulation.now_us - self._started_us
        simulation.decided(life, routes, grant)

    def in_vain(self) -> None:
        self._simulation.end_refused(self._life, "rate_limit_exceeded", None)
