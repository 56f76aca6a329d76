"""Lists all strategies by name."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from router.strategies import advise, breadth, delegate, draft, hedge, single, verify
from router.strategies.record import StrategyOptions, StrategyRecord

_MODULES = (draft, hedge, verify, breadth, delegate, advise)
STRATEGIES: dict[str, StrategyRecord[Any]] = {
    record.name: record for record in (module.RECORD for module in _MODULES)
}
# The strategy of a route leads to its record; None is one engine alone.
RECORDS: Mapping[str | None, StrategyRecord[Any]] = dict(
    [(None, single.RECORD), *STRATEGIES.items()]
)

# Earlier versions had these names; policies write the other ones instead.
REMOVED = {"brief": "hedge", "race": "hedge", "refine": "breadth"}

# A strategy's name where somebody writes it down.
StrategyName = Annotated[
    str,
    Meta(
        pattern=f"^({'|'.join(STRATEGIES)})$",
        extra={"choices": tuple(STRATEGIES), "removed": REMOVED},
    ),
]
# The options of all strategies side by side, as a policy has them.
PolicyOptions = msgspec.defstruct(
    "PolicyOptions",
    [
        (field.name, field.type, field.default)
        for record in STRATEGIES.values()
        for field in msgspec.structs.fields(record.options)
    ],
    bases=(StrategyOptions,),
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
)
