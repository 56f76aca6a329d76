"""Defines an arrival: one task of a log or a trace, with all that deciding and running it takes.

Words are not in a log. Where a decision counts what of an ask is known otherwise (its kind, how
many items the client brought), the stand-in task has words and items that come to the same.
"""

import msgspec

from backends.contract import (
    BackendGroup,
    ContextItem,
    FunctionCallOutput,
    FunctionTool,
    GenerateRequest,
    Message,
)
from router.agent_runs.run_state import NEW_RUN, RunState
from router.classify.classify import Band
from router.classify.task import Hints, Label, Task, TaskClass, Tenant

NO_HINTS = Hints()
_TOOL = (FunctionTool(""),)
_SAID = Message("assistant", ())
_ASKED = Message("user", ())
_RESULT = FunctionCallOutput("", ())

Prefix = tuple[tuple[int, int], ...]


class LoggedTask(Task, frozen=True, kw_only=True, dict=True):
    """Stands in for a task of a log, whose conversation is known by its digest alone."""

    shares: dict[str, float] = msgspec.field(default_factory=dict)  # of canaries, as they were

    def share(self, seed: str) -> float:
        """Returns the share that the conversation had, or another as good for a new seed."""
        known = self.shares.get(seed)
        return super().share(seed) if known is None else known


class AnswerLength(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Says how long one engine's answer to a task was."""

    output_tokens: int
    reasoning_tokens: int = 0  # of these, before its first word


class Seen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Holds what a decision counted that neither the task nor a simulation knows."""

    gain_correction: float = 0.0  # what outcomes had taught
    num_outcomes: int = 0
    explicit: float = 0.0
    alarms: tuple[str, ...] = ()  # of drift


NOTHING_SEEN = Seen()


class Arrival(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Holds one task. Times are in microseconds of Unix time."""

    id: str
    at_us: int
    tenant: str
    tier: str = ""
    prompt_tokens: int
    max_output_tokens: int = 1 << 20
    ask_tokens: int = 0  # the last user message
    turns: int = 1
    num_tools: int = 0
    has_images: bool = False
    has_files: bool = False
    generate: bool = True
    conversation: str = ""  # its digest
    shares: dict[str, float] = {}  # of canaries, by seed
    hints: Hints = NO_HINTS
    run: RunState = NEW_RUN
    kind: str | None = None
    text: str | None = None

    # The classifier's opinion.
    p_deep: float = 0.5
    p_gain: float = 0.2
    p_security: float = 0.0
    expected_output_tokens: int = 256
    seen: Seen = NOTHING_SEEN

    # Its conversation.
    prefix: Prefix = ()
    end_prefix: tuple[int, int] | None = None  # of prompt and answer, as the next turn sends it
    num_items: int = 1
    brought_tokens: int = 0  # in the newest items, which the client brought
    held_tokens: int = 0
    held_turn: bool = False
    last_backend: str | None = None  # as the log says; a simulation knows better by `follows`
    follows: int = -1  # index of the arrival whose answer it continues; -1: of none
    think_us: int = 0  # between that answer's end and this arrival; below 0: it queued for the end

    # The groups that answered in full have a length.
    lengths: tuple[tuple[BackendGroup, AnswerLength], ...] = ()
    rounds: tuple[int, ...] = ()  # tokens of a fast engine's rounds that handed a sub-task on
    at_least_tokens: int = 0  # that an answer had which was cut off
    queued_us: int = 0  # behind another task of its stream
    left_us: int = 0  # when its client had gone, from its arrival; 0: it stayed

    def task(
        self, tenant: Tenant, now_us: int, last_backend: str | None, also_held: dict[str, int]
    ) -> Task:
        """Returns the task as it arrives now."""
        brought = min(self.brought_tokens, self.prompt_tokens)
        newest = _RESULT if self.run.answers_tools else _ASKED
        if self.num_items > 1:
            said = ContextItem(_SAID, self.prompt_tokens - brought, 0)
            items: tuple[ContextItem, ...] = (said, ContextItem(newest, brought, 0))
        else:
            items = (ContextItem(newest, brought or self.prompt_tokens, 0),)
        request = GenerateRequest(
            id=self.id,
            model=self.hints.model,
            items=items,
            num_prompt_tokens=self.prompt_tokens,
            prefix=self.prefix,
            max_output_tokens=self.max_output_tokens,
            tools=_TOOL if self.num_tools else (),
            reasoning_effort=self.hints.reasoning_effort,
            generate=self.generate,
        )
        return LoggedTask(
            id=self.id,
            tenant=tenant,
            request=request,
            hints=self.hints,
            last_user_message=self.text or self.kind or "",
            num_last_message_tokens=self.ask_tokens,
            num_turns=self.turns,
            has_images=self.has_images,
            has_files=self.has_files,
            last_backend=last_backend,
            held_tokens=self.held_tokens if last_backend is not None else 0,
            also_held=also_held,
            held_turn=self.held_turn,
            run=self.run,
            arrived_us=now_us,
            arrived_unix_s=now_us / 1e6,
            conversation=self.conversation,
            shares=self.shares,
            generate=self.generate,
        )

    def task_class(self, band: Band) -> TaskClass:
        """Returns the classifier's opinion by a policy's band."""
        label: Label = "uncertain"
        if self.p_deep < band.low:
            label = "interactive"
        elif self.p_deep >= band.high:
            label = "deep"
        return TaskClass(
            label=label,
            by_words=label,
            p_deep=self.p_deep,
            p_security=self.p_security,
            security_sensitive=self.p_security >= band.security,
            expected_output_tokens=self.expected_output_tokens,
            p_gain=self.p_gain,
            signals=(),
        )
