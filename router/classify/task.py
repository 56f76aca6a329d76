"""What is to be decided: a task, whose it is, and what was found out about it."""

import enum
import re
from functools import cached_property
from typing import Literal

import msgspec

from backends.contract import BackendGroup, GenerateRequest, Usage
from router.classify.text_features import Reading, read

Label = Literal["interactive", "deep", "uncertain"]
Decider = Literal["class", "sticky", "evidence", "deadline", "explore"]  # what settled a label


class Route(enum.StrEnum):
    """Where a task runs: one backend of a group, or one of each."""

    FAST = "fast"
    DEEP = "deep"
    PARALLEL = "parallel"

    @property
    def groups(self) -> tuple[BackendGroup, ...]:
        """The backend groups it needs a backend, and pools, of."""
        if self is Route.FAST:
            return ("fast",)
        if self is Route.DEEP:
            return ("deep",)
        return ("fast", "deep")


class GroupLimits(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's limits on one group of backends. Tokens are weighted (`router.pools.cost`)."""

    requests_per_min: int
    tokens_per_min: int
    max_concurrent: int
    tokens_per_day: int | None = None  # of the UTC day; None: no such limit


# Part of Redis keys, so nothing in it may split one.
TENANT_ID = re.compile(r"[a-z0-9-]{1,64}")


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """Who pays: every key belongs to one. `limits` names the groups it may use, and only those."""

    id: str  # matches `TENANT_ID`
    tier: str
    limits: dict[BackendGroup, GroupLimits]
    weight: float = 1.0  # share when tenants wait for the same engines
    key_id: str = ""  # the key it came with, for the usage ledger


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """What the client asked of the router, by standard fields and metadata."""

    model: str = "auto"
    route: Route | None = None  # metadata.route
    strategy: str | None = None  # metadata.strategy
    strategy_options: dict[str, int | bool] = {}  # by field, of what the strategy leaves open
    deadline_us: int | None = None  # metadata.deadline_ms, from arrival
    max_wait_us: int | None = None  # metadata.max_wait_ms, from arrival: for a full pool
    reasoning_effort: str | None = None
    service_tier: str | None = None
    metadata: dict[str, str] = {}  # as sent, for policies' conditions


class Task(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One `response.create`, resolved: everything a decision needs."""

    id: str  # the response's id
    tenant: Tenant
    request: GenerateRequest
    hints: Hints
    last_user_message: str  # its text: what is classified, not the whole context
    num_last_message_tokens: int
    num_turns: int  # user messages in the context
    has_images: bool
    last_backend: str | None  # the one that holds the conversation's KV prefix, if known
    held_tokens: int = 0  # of the context, which it holds whether it answered or was warmed up
    arrived_us: int
    arrived_unix_s: float = 0.0  # the same instant by the wall clock: policies have hours
    conversation: str = ""  # the same for all its turns: whose share of a canary it is
    generate: bool = True  # false: a warm-up, which produces nothing
    beforehand: Usage = Usage()  # of a generation that prepares the answer, on the same route

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that an engine must take for it."""
        return max(self.request.num_prompt_tokens, self.beforehand.num_input_tokens)

    def warm_up_request(self) -> GenerateRequest:
        """What a warm-up asks of a backend."""
        return msgspec.structs.replace(self.request, generate=False)

    @cached_property
    def reading(self) -> Reading:
        """The prompt as the classifier, the policy's conditions and the decision log see it."""
        return read(self.last_user_message)


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What the classifier looks at."""

    reading: Reading  # the prompt's words and shape
    num_context_tokens: int = 0
    reasoning_effort: str | None = None
    service_tier: str | None = None


class TaskClass(msgspec.Struct, frozen=True, kw_only=True):
    """The classifier's opinion, with its reasons in words."""

    label: Label
    p_deep: float  # 0..1
    p_security: float  # 0..1
    security_sensitive: bool
    expected_output_tokens: int
    p_gain: float = 0.0  # 0..1: a large model gets it right and a small one does not
    signals: tuple[str, ...]  # which signals counted, strongest first
    decided_by: Decider = "class"
    because: str = ""  # how the label came about; empty: by `p_deep` and the policy's band alone
    cautious: bool = False  # drift: rather deep than fast where the choice is open
