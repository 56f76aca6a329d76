"""Defines a task, its tenant, its features and its class."""

import enum
import hashlib
import re
from typing import Literal, cast

import msgspec

from backends.contract import NO_USAGE, BackendGroup, GenerateRequest, Usage
from router.agent_runs.run_state import NEW_RUN, RunState
from router.classify.agent import UNKNOWN_AGENT, Agent
from router.classify.text_features import Reading, read
from router.read_once import ReadOnce

Label = Literal["interactive", "deep", "uncertain"]
Decider = Literal["class", "sticky", "evidence", "deadline", "explore"]  # what settled a label


class Route(enum.StrEnum):
    """Says where a task runs: on one backend of a group, or on one of each."""

    FAST = "fast"
    DEEP = "deep"
    PARALLEL = "parallel"

    groups: tuple[BackendGroup, ...]  # whose backends and pools the route uses

    def __init__(self, name: str) -> None:
        self.groups = ("fast", "deep") if name == "parallel" else (cast(BackendGroup, name),)


class GroupLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a tenant's limits on one group. Tokens are weighted (`router.money.cost`)."""

    requests_per_min: int
    tokens_per_min: int
    max_concurrent: int
    tokens_per_day: int | None = None  # of the UTC day


NO_LIMITS = (-1, -1, -1)


class Account(msgspec.Struct, frozen=True):
    """Describes a budget that a task is charged to in money: of its tenant, its key or its run.

    Limits are of the UTC day, of the month and of all time, in nano-dollars; -1: none.
    """

    name: str  # in Redis: `t`, `k.<key id>` or `r.<run>`
    hard: tuple[int, int, int] = NO_LIMITS  # no task begins that could exceed it
    soft: tuple[int, int, int] = NO_LIMITS  # is told, and limits nothing


StorePolicy = Literal["asked", "never"]  # whether a tenant's responses may be stored anywhere

# Part of Redis keys, so it has no separators.
TENANT_ID = re.compile(r"[a-z0-9-]{1,64}")
_PLAIN_RUN = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


class Tenant(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Holds who pays for a key's requests; `limits` has the groups that it may use."""

    id: str  # matches `TENANT_ID`
    tier: str
    limits: dict[BackendGroup, GroupLimits]
    weight: float = 1.0  # share when tenants wait for the same engines
    store: StorePolicy = "asked"
    key_id: str = ""  # of the request, for the usage ledger
    key_limits: dict[BackendGroup, GroupLimits] = {}  # of that key alone, within `limits`
    accounts: tuple[Account, ...] = ()  # what a task is charged to in money, if it has budgets
    key_account: Account | None = None  # what each of its keys gets, under its own name
    limits_per_key: dict[BackendGroup, GroupLimits] = {}  # what each of its keys gets
    run_account: Account | None = None  # what each of its runs gets, under its own name

    @ReadOnce
    def pool_limits(self) -> tuple[int, ...]:
        """Returns its limits as numbers, in the order of the pools' script; -1: none."""
        return _pool_numbers(self.limits)

    @ReadOnce
    def key_pool_limits(self) -> tuple[int, ...]:
        """Returns its key's own limits in the same way."""
        return _pool_numbers(self.key_limits)


def _pool_numbers(limits: dict[BackendGroup, GroupLimits]) -> tuple[int, ...]:
    numbers: list[int] = []
    for group in Route.PARALLEL.groups:
        of_group = limits.get(group)
        if of_group is None:
            numbers += (-1, -1, -1, -1)
            continue
        per_day = -1 if of_group.tokens_per_day is None else of_group.tokens_per_day
        numbers += (of_group.requests_per_min, of_group.tokens_per_min)
        numbers += (of_group.max_concurrent, per_day)
    return tuple(numbers)


def for_run(tenant: Tenant, run: str | None) -> Tenant:
    """Returns the tenant as a task of a run is charged; the same if runs have no budget."""
    if tenant.run_account is None or not run:
        return tenant
    account = msgspec.structs.replace(tenant.run_account, name=f"r.{run_name(run)}")
    return msgspec.structs.replace(tenant, accounts=(*tenant.accounts, account))


def run_name(run: str) -> str:
    """Returns a run's name as its account has it: as it is, or a hash of an odd one."""
    if _PLAIN_RUN.fullmatch(run):
        return run
    return "h-" + hashlib.sha256(run.encode("utf-8", "surrogatepass")).hexdigest()[:32]


OptionValue = int | bool | str  # of a strategy, as a client sets it


class Hints(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Holds the client's routing hints, from standard fields and metadata."""

    model: str = "auto"
    route: Route | None = None  # metadata.route
    strategy: str | None = None  # metadata.strategy
    strategy_options: dict[str, OptionValue] = {}  # by field
    deadline_us: int | None = None  # metadata.deadline_ms, from arrival
    max_wait_us: int | None = None  # metadata.max_wait_ms, from arrival: for a full pool
    reasoning_effort: str | None = None
    service_tier: str | None = None
    completion_window: str | None = None  # of background work
    metadata: dict[str, str] = {}  # for policies' conditions
    agent: Agent = UNKNOWN_AGENT  # which part of an agent asks, as its client says


class Task(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Holds one `response.create` with everything that a decision needs."""

    id: str  # the response's id
    tenant: Tenant
    request: GenerateRequest
    hints: Hints
    last_user_message: str  # the text that is classified
    num_last_message_tokens: int
    num_turns: int  # user messages in the context
    has_images: bool
    has_files: bool = False
    last_backend: str | None  # the one that holds the conversation's KV prefix, if known
    held_tokens: int = 0  # of the context, in the KV cache of `last_backend`
    # Other backends that held some of the context, and its tokens; sought where a move may be due.
    also_held: dict[str, int] = {}
    held_turn: bool = False  # its client showed that a backend of ours began this turn
    run: RunState = NEW_RUN  # what has happened since the ask
    arrived_us: int
    arrived_unix_s: float = 0.0  # the same instant by the wall clock, for time windows
    conversation: str = ""  # the same for all its turns, for canaries
    generate: bool = True  # false: a warm-up, which produces nothing
    beforehand: Usage = NO_USAGE  # of a generation that prepares the answer, on the same route

    @property
    def max_prompt_tokens(self) -> int:
        """Returns the longest prompt that an engine must accept for the task."""
        own, before = self.request.num_prompt_tokens, self.beforehand.num_input_tokens
        return own if own > before else before

    def warm_up_request(self) -> GenerateRequest:
        """Returns the request of a warm-up, which generates nothing."""
        return msgspec.structs.replace(self.request, generate=False)

    @property
    def conversation_digest(self) -> str:
        """Returns what the decision log says of the conversation, instead of its words."""
        known = f"{self.tenant.id}\0{self.conversation}".encode(errors="replace")
        return hashlib.blake2b(known, digest_size=8).hexdigest()

    def share(self, seed: str) -> float:
        """Hashes the conversation and a seed to a number from 0 to 1, for canaries."""
        key = f"{seed}\0{self.tenant.id}\0{self.conversation}".encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()) / 2**64

    @ReadOnce
    def reading(self) -> Reading:
        """Returns the prompt as classifier, conditions and decision log see it."""
        return read(self.last_user_message)


class Features(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Holds what the classifier looks at."""

    reading: Reading  # the prompt's words and shape
    p_security_around: float = 0.0  # of the instructions and of what else was said
    sensitive_where: str = ""  # in words
    num_context_tokens: int = 0
    reasoning_effort: str | None = None
    service_tier: str | None = None


class TaskClass(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Holds the classifier's opinion with its reasons, and the label that it went by."""

    label: Label
    by_words: Label  # the label by `p_deep` alone
    p_deep: float  # 0..1
    p_security: float  # 0..1
    security_sensitive: bool
    expected_output_tokens: int
    p_gain: float = 0.0  # 0..1: a large model gets it right and a small one does not
    signals: tuple[str, ...]  # strongest first
    decided_by: Decider = "class"
    because: str = ""  # empty: `p_deep` and the policy's band decided alone
    cautious: bool = False  # on drift: prefer deep in doubt
