"""Reads from a conversation which engine holds it, what a move would cost, and what justifies one.

- The engine that answered last has the context in its KV cache; elsewhere all of it would be
  prefilled again. So the longer the context, the better another engine must be: this hysteresis
  keeps a conversation from flapping.
- What happened in its run (`router.agent_runs`) is evidence, while a fast engine holds it.
- Amid its tool calls a run moves by what happens alone: up where it is stuck, and down from the
  deep engine where it goes well and the fast one has most of the context already.
"""

import math
from collections.abc import Sequence
from itertools import islice

import msgspec

from backends.contract import BackendGroup, BackendStats
from backends.prompt import is_tool_output, is_user
from router.agent_runs.run_state import CALM_STEPS, RunState
from router.classify.task import Task

MAX_BROUGHT = 32  # newest items that the client brought, and no engine has

# All in log-odds of "needs deep", as the classifier's signals.
HOLDING = 0.3  # of any conversation
PER_DOUBLING = 0.25  # more with each doubling of its tokens beyond `PREFIX_TOKENS`
PREFIX_TOKENS = 1_024
MAX_HOLDING = 1.5
GROWTH = 0.5
GROWN_TOKENS = 24_000  # of tool outputs since the prompt, a sign of more work than expected

# What a run that goes well may have the fast engine prefill, so that a move saves more than it
# costs: a wafer prefills as many in well under a second.
MAX_COLD_TOKENS = 16_384


class ConversationState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Holds the state of a conversation."""

    holder: BackendGroup | None = None  # whose backend answered last
    held_tokens: int = 0  # of the context, in that backend's KV cache at most
    fast_tokens: int = 0  # of the context, in that of a fast backend that held it before
    answers_tools: bool = False  # in the middle of its tool calls
    evidence: float = 0.0  # that the last answer failed
    signs: tuple[str, ...] = ()  # the evidence in words
    dissatisfied: bool = False  # the user repeats the prompt, or complains
    goes_on: bool = False  # the prompt is no task of its own: too short, "go on" or thanks
    wants_more: bool = False  # it says "go on", and no more than that
    gives_thanks: bool = False  # it thanks, and no more than that

    @property
    def holding(self) -> float:
        """Returns the log-odds for staying; 0 for a new conversation."""
        if self.holder is None:
            return 0.0
        doublings = math.log2(1 + self.held_tokens / PREFIX_TOKENS)
        return min(MAX_HOLDING, HOLDING + PER_DOUBLING * doublings)


NEW = ConversationState()


def conversation_state(task: Task, stats: Sequence[BackendStats]) -> ConversationState:
    """Reads the state of a task's conversation from its newest items and its run."""
    items, run = task.request.items, task.run
    if len(items) < 2 and not task.held_tokens and not task.held_turn:
        return NEW
    groups = {each.info.name: each.info.group for each in stats}
    holder = groups.get(task.last_backend or "")
    if run.wants_more and run.was_thanked and task.also_held:
        holder = _answered_the_ask(task, groups) or holder
    num_held = task.request.num_prompt_tokens
    for entry in islice(reversed(items), MAX_BROUGHT):
        if not (is_user(entry) or is_tool_output(entry)):
            break
        num_held -= entry.num_tokens
    evidence, signs = run.strain, run.signs
    if run.answers_tools and run.num_tokens >= GROWN_TOKENS:
        evidence += GROWTH
        signs = (*signs, f"{run.num_tokens} tokens since the ask")
    return ConversationState(
        holder=holder,
        held_tokens=max(task.held_tokens if holder else 0, num_held),
        fast_tokens=max(
            (tokens for name, tokens in task.also_held.items() if groups.get(name) == "fast"),
            default=0,
        ),
        answers_tools=run.answers_tools,
        evidence=evidence,
        signs=signs,
        dissatisfied=run.dissatisfied,
        goes_on=run.goes_on and not run.answers_tools,
        wants_more=run.wants_more and not run.answers_tools,
        gives_thanks=run.gives_thanks and not run.answers_tools,
    )


def _answered_the_ask(task: Task, groups: dict[str, BackendGroup]) -> BackendGroup | None:
    """Returns whose other backend answered the last ask, where only thanks have come since.

    It held the context up to that ask, and whoever answered the thanks has held it later.
    """
    num_tokens = task.request.num_prompt_tokens - task.run.num_tokens
    held = [(tokens, name) for name, tokens in task.also_held.items() if tokens >= num_tokens]
    return groups.get(min(held)[1]) if held else None


def may_move(run: RunState) -> bool:
    """Returns whether a run's next step may be on the other engine, so that its prefix matters."""
    if run.answers_tools:
        return run.stuck or run.calm_steps >= CALM_STEPS
    return run.stuck or run.gives_thanks or (run.wants_more and run.was_thanked)
