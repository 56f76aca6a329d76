"""`/admin/learning` shows and resets what was learned from outcomes.

Each gateway answers for itself; gateways share what they learn within seconds. This is an edge.
"""

from typing import Any

import msgspec
from litestar import get, post
from litestar.params import FromPath

from gateway.admin.guard import write_records
from gateway.http.services import Services, services_of
from gateway.http.streams import AnyRequest
from gateway.wire.errors import ProtocolError
from router.learn.learning import MIN_OUTCOMES


class LearningView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows what one tenant's outcomes taught."""

    tenant: str
    outcomes: dict[str, float]  # by engine group, weighed; old ones fade
    needed: int  # of each, before they count
    trust: float  # 0: the prior rules alone; 1: what was learned counts in full
    distance: float  # root mean square by which the gain is moved
    epoch: int  # resets and restores so far
    drift: dict[str, str]  # the alarms that stand here, in words
    psi: dict[str, float]  # population stability index by signal


@get("/learning")
async def get_learning(request: AnyRequest) -> list[LearningView]:
    """Shows every tenant whose tasks this process has run."""
    services = services_of(request)
    return [_view(services, tenant_id) for tenant_id in list(services.gw.experience.learners)]


@get("/learning/{tenant_id:str}")
async def get_tenant_learning(request: AnyRequest, tenant_id: FromPath[str]) -> LearningView:
    """Shows one tenant."""
    services = services_of(request)
    await _know(services, tenant_id)
    return _view(services, tenant_id)


@post("/learning/{tenant_id:str}/reset", status_code=200)
async def reset_learning(request: AnyRequest, tenant_id: FromPath[str]) -> LearningView:
    """Goes back to the prior, on every gateway; can be undone once."""
    services = services_of(request)
    await _know(services, tenant_id)
    await services.learned.reset(tenant_id)
    await write_records(request, "learning.reset", tenant_id, {})
    return _view(services, tenant_id)


@post("/learning/{tenant_id:str}/restore", status_code=200)
async def restore_learning(request: AnyRequest, tenant_id: FromPath[str]) -> LearningView:
    """Undo the last reset; what was learned since is dropped."""
    services = services_of(request)
    await _know(services, tenant_id)
    restored = await services.learned.restore(tenant_id)
    if not restored:
        raise ProtocolError("conflict", f"There is no reset of {tenant_id!r} to undo.")
    await write_records(request, "learning.restore", tenant_id, {})
    return _view(services, tenant_id)


async def _know(services: Services, tenant_id: str) -> None:
    """Loads what other gateways learned; refuses a tenant of whom nothing was ever learned."""
    if tenant_id in services.gw.experience.learners:
        return
    if not await services.learned.load(tenant_id):
        message = f"Nothing was learned of a tenant '{tenant_id[:80]}'."
        raise ProtocolError("not_found", message)


def _view(services: Services, tenant_id: str) -> LearningView:
    learner = services.gw.experience.learner(tenant_id)
    standing = services.gw.experience.monitor(tenant_id).standing
    return LearningView(
        tenant=tenant_id,
        outcomes={arm: round(sums.num_outcomes, 2) for arm, sums in learner.known.items()},
        needed=MIN_OUTCOMES,
        trust=round(learner.trust, 3),
        distance=round(learner.distance, 4),
        epoch=learner.epoch or 0,
        drift={str(sign): words for sign, words in standing.alarms.items()},
        psi={signal: round(index, 3) for signal, index in standing.psi.items()},
    )


HANDLERS: list[Any] = [get_learning, get_tenant_learning, reset_learning, restore_learning]
