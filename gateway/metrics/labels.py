"""Defines the metrics' labels, with all their values where those are no configured names."""

from typing import Literal, get_args

from gateway.metrics.record import Label
from gateway.store.reports import Recorded
from gateway.wire.routing import WarmUpState
from router.classify.task import Label as TaskLabel
from router.classify.task import Route
from router.comparison.prediction import CHECKED
from router.decide.decision import Reason
from router.learn.drift import SIGNALS, Sign
from router.learn.pending_outcomes import OutcomeSource
from router.pools.budgets import WINDOWS, Scope
from router.pools.pools import GROUPS, TENANT_UNITS, PoolCall, PoolsMode, Shed, Unit
from router.strategies.table import STRATEGIES

Outcome = Literal["ok", "rate_limited", "shed", "timeout", "error", "cancelled", "invalid"]
TokenType = Literal["input", "cached_input", "output", "reasoning"]
Stage = Literal["parse", "classify", "policy", "admit", "dispatch"]
Mode = Literal["live", "shadow", "canary"]
PolicyReload = Literal["ok", "invalid", "unavailable"]
ConfigReload = Literal["ok", "invalid"]
Admission = Literal["admit", "reject"]
Arm = Literal["canary", "control"]
Door = Literal["client", "admin"]
# `degraded`: an answer, though a part failed; then the other engine gave it, or had less to go by.
StrategyOutcome = Literal["ok", "degraded", "error", "cancelled"]
WaitOutcome = Literal["admitted", "refused", "left"]
Continuation = Literal["broke", "stalled"]
# `automatic`: before an answer, by `context_management`; `requested`: nothing else was asked for.
CompactionKind = Literal["automatic", "requested"]
# The last two: a context over its threshold that stayed as it is.
CompactionOutcome = Literal["done", "failed", "stopped", "limit_reached", "nothing_to_fold"]

CLOSE_CODES = (1000, 1001, 1006, 1008, 1009, 1011, 1012, 1013)  # RFC 6455 7.4; others: "other"
LIMIT_NAMES: dict[Unit, str] = {
    "requests": "rpm",
    "tokens": "tpm",
    "concurrent": "conc",
    "tokens_day": "tpd",
    "key_requests": "key_rpm",
    "key_tokens": "key_tpm",
    "key_concurrent": "key_conc",
    "key_tokens_day": "key_tpd",
}
_ROUTES = tuple(route.value for route in Route)

ROUTE = Label("route", (*_ROUTES, "none"))  # none: it was refused
FROM, TO = Label("from", _ROUTES), Label("to", _ROUTES)
GROUP = Label("group", GROUPS)
VERSION = Label("version")
BACKEND, MODEL, TENANT = Label("backend"), Label("model"), Label("tenant")
FROM_BACKEND, TO_BACKEND = Label("from"), Label("to")
CONTINUATION = Label("reason", get_args(Continuation))
OUTCOME = Label("outcome", get_args(Outcome))
TOKEN_TYPE = Label("type", get_args(TokenType))
STAGE = Label("stage", get_args(Stage))
POLICY, RULE, TASK = Label("policy"), Label("rule"), Label("task", get_args(TaskLabel))
MODE = Label("mode", get_args(Mode))
POLICY_MODE = Label("mode", ("live", "shadow"))
POLICY_RESULT = Label("result", get_args(PolicyReload))
CONFIG_RESULT = Label("result", get_args(ConfigReload))
RECORDED = Label("result", get_args(Recorded))
ROUTE_REASON = Label("reason", tuple(reason.value for reason in Reason))
TIER = Label("tier")
SCOPE = Label("scope", get_args(Scope))
WINDOW = Label("window", WINDOWS)
KIND = Label("kind", ("soft", "hard"))
ADMISSION = Label("result", get_args(Admission))
LIMIT = Label("limit", ("none", *LIMIT_NAMES.values()))
POOL = Label("limit", tuple(LIMIT_NAMES[unit] for unit in TENANT_UNITS))
ASKED = Label("result", ("admitted", *LIMIT_NAMES.values(), "none"))  # none: no pool refused it
ARM = Label("arm", get_args(Arm))
DOOR = Label("door", get_args(Door))
WARMTH = Label("state", tuple(state for state in get_args(WarmUpState) if state != "warming"))
FINISHED_REASON = Label("finished_reason", ("stop", "length", "abort"))  # as vLLM calls them
POOLS_MODE = Label("mode", get_args(PoolsMode))
POOL_CALL = Label("op", get_args(PoolCall))
WAIT_OUTCOME = Label("outcome", get_args(WaitOutcome))
SHED = Label("reason", get_args(Shed))
STRATEGY = Label("strategy", tuple(STRATEGIES))
STRATEGY_OUTCOME = Label("outcome", get_args(StrategyOutcome))
COMPETING = Label("strategy", tuple(name for name in STRATEGIES if STRATEGIES[name].competes))
CLOSE_CODE = Label("code", (*map(str, CLOSE_CODES), "other"))
# `no_key`: no key came in time; `head`, `body`: it was too slow or too large; the others say of
# what there were too many.
CUT = Label("reason", ("no_key", "head", "body", "handshake", "address", "key", "descriptors"))
MEMORY = Label("kind", ("in_flight", "remembered"))
KEY = Label("key", ("with", "without"))
ERROR_CODE = Label("reason")  # the protocol's
COMPACTION_KIND = Label("kind", get_args(CompactionKind))
COMPACTION_OUTCOME = Label("outcome", get_args(CompactionOutcome))
OUTCOME_SOURCE = Label("source", get_args(OutcomeSource))
FIGURE = Label("figure", CHECKED)
SIGN, SIGNAL = Label("sign", get_args(Sign)), Label("signal", SIGNALS)
