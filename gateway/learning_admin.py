"""The admin API's view of what outcomes taught: how much, how far from the prior; and the way back.

Each gateway answers for itself; what is learned is shared by all within seconds.
"""

from typing import Any

import msgspec
from litestar import get, post
from redis.exceptions import RedisError

from gateway.admin_guard import services_of
from gateway.app import Services
from gateway.errors import ProtocolError
from gateway.http import AnyRequest
from router.learning import MIN_OUTCOMES, GainLearner


class LearningView(msgspec.Struct, frozen=True, kw_only=True):
    """What one tenant's outcomes taught."""

    tenant: str
    outcomes: dict[str, float]  # by engine group, weighed; old ones fade
    needed: int  # of each, before they count
    trust: float  # 0: the prior rules alone; 1: what was learned counts in full
    distance: float  # root mean square by which the gain is moved
    epoch: int  # resets and restores so far


@get("/learning")
async def get_learning(request: AnyRequest) -> list[LearningView]:
    """Every tenant of whom this process has outcomes."""
    learners = services_of(request).gw.experience.learners
    return [
        _view(tenant_id, learner)
        for tenant_id, learner in learners.items()
        if any(sums.num_outcomes for sums in learner.known.values())
    ]


@get("/learning/{tenant_id:str}")
async def get_tenant_learning(request: AnyRequest, tenant_id: str) -> LearningView:
    """One tenant."""
    services = services_of(request)
    await _know(services, tenant_id)
    return _view(tenant_id, services.gw.experience.learner(tenant_id))


@post("/learning/{tenant_id:str}/reset", status_code=200)
async def reset_learning(request: AnyRequest, tenant_id: str) -> LearningView:
    """Back to the prior, on every gateway; can be undone once."""
    services = services_of(request)
    await _know(services, tenant_id)
    try:
        await services.learned.reset(tenant_id)
    except RedisError as error:
        raise _unavailable(error) from error
    return _view(tenant_id, services.gw.experience.learner(tenant_id))


@post("/learning/{tenant_id:str}/restore", status_code=200)
async def restore_learning(request: AnyRequest, tenant_id: str) -> LearningView:
    """Undo the last reset; what was learned since is dropped."""
    services = services_of(request)
    await _know(services, tenant_id)
    try:
        restored = await services.learned.restore(tenant_id)
    except RedisError as error:
        raise _unavailable(error) from error
    if not restored:
        raise ProtocolError("conflict", f"There is no reset of {tenant_id!r} to undo.")
    return _view(tenant_id, services.gw.experience.learner(tenant_id))


async def _know(services: Services, tenant_id: str) -> None:
    """Take over what other gateways know.

    Raises:
        ProtocolError: Nothing was ever learned of a tenant of that name.
    """
    if tenant_id in services.gw.experience.learners:
        return
    try:
        known = await services.learned.load(tenant_id)
    except RedisError as error:
        raise _unavailable(error) from error
    if not known:
        message = f"Nothing was learned of a tenant '{tenant_id[:80]}'."
        raise ProtocolError("not_found", message)


def _view(tenant_id: str, learner: GainLearner) -> LearningView:
    return LearningView(
        tenant=tenant_id,
        outcomes={arm: round(sums.num_outcomes, 2) for arm, sums in learner.known.items()},
        needed=MIN_OUTCOMES,
        trust=round(learner.trust, 3),
        distance=round(learner.distance, 4),
        epoch=learner.epoch,
    )


def _unavailable(error: RedisError) -> ProtocolError:
    message = f"Redis does not answer ({type(error).__name__}). Nothing changed; try again in 1s."
    return ProtocolError("server_is_overloaded", message, retry_after_us=1_000_000)


HANDLERS: list[Any] = [get_learning, get_tenant_learning, reset_learning, restore_learning]
