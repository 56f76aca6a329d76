"""Runs sequences on a cost model and the caller's clock, and returns their tokens when due.

    add, cancel          start and stop sequences, each at a time
    next_event_us        when there will be something to fetch
    advance              fetch everything due by now

The engine is idle or in a *run* of equal steps. A run ends when the batch must change: a sequence
finishes, a prompt chunk is done, KV blocks run out, or a sequence arrives that could be admitted,
which cuts the run at the end of the step under way. A decode run of q steps is one closed-form
jump, so the cost of simulating follows arrivals and finishes, not tokens. All timestamps are the
engine's own: a late call changes nothing but when the caller learns of them.

The wafer, the GPU and the digital twin are this same class with different `CostModel`s.
"""

from collections import deque
from math import ceil, sqrt

import msgspec

from wafer_engine.batching.cost_model import CostModel
from wafer_engine.batching.scheduler import ScheduledStep, Scheduler
from wafer_engine.batching.sequence import Sequence, SequenceStatus

# Tokens of a sequence that came out: its id, how many, when the last of them did, and whether that
# was its last. The first token is a row of its own, so its time is known to the microsecond; those
# after it are summed up to one row, stamped with the last one's time.
OutputRow = tuple[int, int, int, bool]


class EngineStats(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Is a snapshot; its totals run from the engine's start."""

    num_running: int
    num_waiting: int
    num_warming: int  # warm-ups, none of which counts as running or waiting
    kv_used_tokens: int  # by live sequences, in whole blocks
    kv_capacity_tokens: int
    num_generated_tokens: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    busy_us: int  # steps that have run, one after the other


class Engine:
    """Runs sequences as the module's docstring says. `now_us` must never go back."""

    def __init__(self, cost: CostModel, *, max_run_steps: int = 2**31) -> None:
        """Starts idle. `max_run_steps` is the longest run to jump over: 1 computes every step."""
        self._cost = cost
        self._overhead_us = cost.limits.overhead_us
        self._max_run_steps = max_run_steps
        self._scheduler = Scheduler(cost.limits)
        kv = self._scheduler.kv
        self.kv_capacity_tokens = kv.num_blocks * kv.block_tokens
        self._sequences: dict[int, Sequence] = {}  # until their finish is fetched
        self._arriving: deque[tuple[int, Sequence]] = deque()  # (when the scheduler sees it, it)
        self._output: list[OutputRow] = []  # not yet fetched
        # The present is `origin + offset`: whole microseconds and their fraction, so that long runs
        # of short steps lose no precision however large the clock's reading is.
        self._origin_us = 0
        self._offset_us = 0.0
        self._last_step_us = 0  # when the last completed step ended
        # The run under way, if any, and how far it is.
        self._run: ScheduledStep | None = None
        self._run_steps = 0
        self._run_done = 0
        self._run_us = 0.0  # that all of its steps take
        self._run_end_us = 0
        self._step_end_us = 0  # of the step under way
        self._first_step_us = 0.0
        self._growth_us = 0.0
        self._busy_us = 0.0  # of completed runs
        self._shared_us = 0.0  # the same, each step divided by the sequences in it
        self._num_sharing = 1  # sequences in the run under way

    def add(self, sequence: Sequence, now_us: int) -> None:
        """Queues a sequence; raises ValueError if it exceeds the KV cache, or its id is taken."""
        assert sequence.num_prompt_tokens > 0, sequence
        assert sequence.num_output_tokens >= 0, sequence
        self._scheduler.check_fits(sequence)
        if sequence.id in self._sequences:
            raise ValueError(f"sequence {sequence.id} is already here")
        self._sequences[sequence.id] = sequence
        sequence.arrived_us = now_us
        self._arriving.append((now_us + self._overhead_us, sequence))
        self._catch_up(now_us)

    def cancel(self, sequence_id: int, now_us: int) -> int:
        """Drops a sequence at once; none of its tokens are reported any more.

        Returns the tokens it had generated, reported or not; 0 for an unknown id.
        """
        self._catch_up(now_us)
        sequence = self._sequences.pop(sequence_id, None)
        if sequence is None:
            return 0
        self._end_share(sequence)
        if any(arriving is sequence for _, arriving in self._arriving):
            self._arriving = deque(a for a in self._arriving if a[1] is not sequence)
        else:
            self._cut_run()
            self._scheduler.remove(sequence)
        if self._output:
            self._output = [row for row in self._output if row[0] != sequence_id]
        return sequence.num_generated

    def advance(self, now_us: int, *, progress: bool = True) -> list[OutputRow]:
        """Computes everything due by now and returns its output.

        Without `progress`, sequences that neither started nor finished are left out, and their
        tokens are in a later row. So the caller need not look at every sequence each time.
        """
        self._catch_up(now_us)
        output = self._output
        if not output:
            return self._progress() if progress else []
        self._output = []
        for sequence_id, _, _, finished in output:
            if finished:
                del self._sequences[sequence_id]
        return output + self._progress() if progress else output

    def next_event_us(self) -> int | None:
        """Returns when to call `advance` next to miss no start and no finish; None while idle.

        It may turn out that nothing happened then (a prompt's chunk was done, say).
        """
        if self._output:
            return self._last_step_us
        run_end_us = self._run_end_us if self._run is not None else None
        if not self._arriving:
            return run_end_us
        arrival_us = self._arriving[0][0]
        return arrival_us if run_end_us is None else min(arrival_us, run_end_us)

    def next_token_us(self) -> int | None:
        """Returns when the step under way ends; None between steps."""
        return self._step_end_us if self._run is not None else None

    @property
    def num_waiting(self) -> int:
        """Returns how many sequences are not yet admitted, without warm-ups."""
        return self.load()[1]

    def load(self) -> tuple[int, int, int, int]:
        """Returns what the first four of `stats` are: few things, for whoever asks often."""
        scheduler, num_arriving = self._scheduler, len(self._arriving)
        num_warming, kv = len(scheduler.warming), scheduler.kv
        if num_arriving:
            num_new = sum([sequence.is_warm_up for _, sequence in self._arriving])
            num_warming += num_new
            num_arriving -= num_new
        num_waiting = len(scheduler.waiting) + num_arriving
        used_tokens = kv.pinned_blocks * kv.block_tokens
        return len(scheduler.running), num_waiting, num_warming, used_tokens

    def stats(self) -> EngineStats:
        """Returns the state and the totals, as of the last call that had the time."""
        scheduler = self._scheduler
        num_running, num_waiting, num_warming, kv_used_tokens = self.load()
        busy_us = self._busy_us
        if self._run_done:
            busy_us += self._elapsed_us(self._run_done)
        return EngineStats(
            num_running=num_running,
            num_waiting=num_waiting,
            num_warming=num_warming,
            kv_used_tokens=kv_used_tokens,
            kv_capacity_tokens=self.kv_capacity_tokens,
            num_generated_tokens=scheduler.num_generated_tokens,
            num_prompt_tokens=scheduler.num_prompt_tokens,
            num_cached_tokens=scheduler.num_cached_tokens,
            num_preemptions=scheduler.num_preemptions,
            busy_us=int(busy_us),
        )

    def _catch_up(self, now_us: int) -> None:
        """Processes everything due by now, in order of time; ends of steps come before arrivals."""
        while self._arriving and self._arriving[0][0] <= now_us:
            at_us, sequence = self._arriving.popleft()
            self._run_until(at_us)
            if self._scheduler.admits_newcomer:
                self._cut_run()
            self._scheduler.enqueue(sequence)
            if self._run is None:
                self._origin_us, self._offset_us = at_us, 0.0
                self._begin_run()
        if now_us >= self._step_end_us:
            self._run_until(now_us)

    def _run_until(self, now_us: int) -> None:
        while self._run is not None and now_us >= self._step_end_us:
            if self._run_end_us <= now_us:
                self._complete(self._run, self._run_steps, self._run_end_us)
            else:
                num_done, done_us, self._step_end_us = self._steps_by(now_us)
                self._complete(self._run, num_done, done_us)
                return
            elapsed_us = self._run_us
            self._busy_us += elapsed_us
            self._shared_us += elapsed_us / self._num_sharing
            self._offset_us += elapsed_us
            whole_us = int(self._offset_us)
            self._origin_us += whole_us
            self._offset_us -= whole_us
            self._begin_run()

    def _begin_run(self) -> None:
        self._run = run = self._scheduler.plan()
        self._run_done = 0
        if run is None:
            return
        shape = run.shape
        self._num_sharing = shape.num_decode_seqs + len(run.chunks)
        for sequence, _ in run.chunks:
            if sequence.scheduled_us < 0:
                sequence.scheduled_us = self._origin_us + int(self._offset_us)
                sequence.share_us = -self._shared_us
            elif sequence.share_us > 0:  # it was preempted, and is back
                sequence.share_us -= self._shared_us
        for sequence in run.preempted:
            self._end_share(sequence)
            self._report(sequence, self._last_step_us, finished=False)
        self._first_step_us = self._run_us = step_us = self._cost.step_us(shape)
        assert step_us > 0, shape
        self._growth_us = 0.0
        self._step_end_us = self._run_end_us = self._origin_us + ceil(self._offset_us + step_us)
        steps = run.max_steps
        if steps > self._max_run_steps:
            steps = self._max_run_steps
        self._run_steps = steps
        if steps > 1:
            self._growth_us = self._cost.growth_us(shape.num_decode_seqs)
            self._run_us = run_us = self._elapsed_us(steps)
            self._run_end_us = self._origin_us + ceil(self._offset_us + run_us)

    def _complete(self, run: ScheduledStep, num_done: int, at_us: int) -> None:
        started, finished = self._scheduler.complete(run, num_done - self._run_done)
        self._run_done = num_done
        self._last_step_us = at_us
        for sequence in started:
            is_last = sequence.status is SequenceStatus.FINISHED
            if sequence.first_token_us < 0:
                sequence.first_token_us = at_us
            self._report(sequence, at_us, finished=is_last)
        for sequence in finished:
            self._end_share(sequence)
            if sequence.num_reported < sequence.num_generated or sequence.is_warm_up:
                self._report(sequence, at_us, finished=True)

    def _end_share(self, sequence: Sequence) -> None:
        """Adds up a sequence's part of the engine's time; once, each time it leaves the batch."""
        if sequence.scheduled_us >= 0 and sequence.share_us <= 0:
            under_way_us = self._elapsed_us(self._run_done) if self._run is not None else 0.0
            sequence.share_us += self._shared_us + under_way_us / self._num_sharing

    def _cut_run(self) -> None:
        if self._run is not None and self._run_steps > self._run_done + 1:
            self._run_steps = self._run_done + 1
            self._run_us = self._elapsed_us(self._run_steps)
            self._run_end_us = self._step_end_us

    def _elapsed_us(self, num_steps: int) -> float:
        """Returns the time from the run's start to the end of its step of that number, from 1."""
        growth = self._growth_us * (num_steps * (num_steps - 1) / 2)
        return num_steps * self._first_step_us + growth

    def _end_us(self, num_steps: int) -> int:
        # This repeats `_elapsed_us`, as it is asked for so often that a call would cost.
        growth = self._growth_us * (num_steps * (num_steps - 1) / 2)
        return self._origin_us + ceil(self._offset_us + (num_steps * self._first_step_us + growth))

    def _steps_by(self, now_us: int) -> tuple[int, int, int]:
        """Returns how many of the run's steps (at least 1) have ended: inverts `_elapsed_us`.

        And when the last of them did, and when the next one will.
        """
        elapsed = now_us - self._origin_us - self._offset_us
        half = self._growth_us / 2
        linear = self._first_step_us - half
        if half > 0:
            # The positive root of half n^2 + linear n - elapsed, in the form that keeps precision.
            root = 2 * elapsed / (linear + sqrt(linear * linear + 4 * half * max(elapsed, 0.0)))
        else:
            root = elapsed / linear
        num_steps = min(max(int(root), self._run_done), self._run_steps)
        end_us = self._end_us(num_steps)
        while num_steps > self._run_done and end_us > now_us:
            num_steps -= 1
            end_us = self._end_us(num_steps)
        next_us = self._end_us(num_steps + 1)
        while num_steps < self._run_steps and next_us <= now_us:
            num_steps += 1
            end_us, next_us = next_us, self._end_us(num_steps + 1)
        return num_steps, end_us, next_us

    def _report(self, sequence: Sequence, at_us: int, *, finished: bool) -> None:
        num_generated = sequence.num_generated
        num_tokens = num_generated - sequence.num_reported
        if num_tokens or finished:
            sequence.num_reported = num_generated
            self._output.append((sequence.id, num_tokens, at_us, finished))

    def _progress(self) -> list[OutputRow]:
        """Reports what sequences have generated that neither start nor finish now."""
        rows: list[OutputRow] = []
        generated = self._scheduler.batch.generated
        for sequence in self._scheduler.running.values():
            if sequence.status is SequenceStatus.DECODING:
                num_generated = generated(sequence)
                if num_generated > sequence.num_reported:
                    num_tokens = num_generated - sequence.num_reported
                    sequence.num_reported = num_generated
                    rows.append((sequence.id, num_tokens, self._last_step_us, False))
        return rows
