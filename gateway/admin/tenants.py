"""`/admin/tenants` and `/admin/tiers` say who may use what. This is an edge."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from litestar import delete, get, patch, post, put
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import UNSET, UnsetType

from backends.contract import BackendGroup
from gateway.access.tenant_view import TenantsView
from gateway.admin.guard import budget_warnings, changed_entries, no_tenant, write_records
from gateway.config.budgets import Budget, BudgetName, Budgets
from gateway.config.tenants import (
    MAX_LISTED,
    KeyLimits,
    Limit,
    LimitsOfKey,
    TenantRecord,
    TenantTerms,
    Tier,
    TierConfig,
    Weight,
    fault_of,
    fault_of_tier,
)
from gateway.http.services import services_of
from gateway.http.streams import AnyRequest
from gateway.wire.errors import ProtocolError
from router.classify.task import TENANT_ID, GroupLimits, StorePolicy

LimitChange = Limit | Literal["tier"] | None
OwnLimits = dict[BackendGroup, dict[str, Limit | None]]


class NewTenant(TenantTerms, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Describes a tenant to be made."""

    id: str
    tier: str
    limits: OwnLimits = msgspec.field(default_factory=dict)  # instead of the tier's, one by one
    keep_data: bool = False  # it gets what an earlier tenant of this id left


class TenantChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Says what is to be different; null gives a field back to the tier."""

    tier: str | UnsetType = UNSET
    # Limit by limit: "tier" gives one back, null is none at all; of a group null gives back all.
    limits: dict[BackendGroup, dict[str, LimitChange] | None] | UnsetType | None = UNSET
    access: tuple[BackendGroup, ...] | UnsetType | None = UNSET
    weight: Weight | UnsetType | None = UNSET
    store: StorePolicy | UnsetType = UNSET
    budgets: dict[BudgetName, Budget | None] | UnsetType | None = UNSET  # null: the tier's
    key_limits: dict[BackendGroup, KeyLimits | None] | UnsetType | None = UNSET


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows a tenant with the limits it has now, its own and its tier's together."""

    id: str
    tier: str
    limits: dict[BackendGroup, GroupLimits]
    weight: float
    own_limits: OwnLimits
    access: tuple[BackendGroup, ...] | None
    store: StorePolicy
    budgets: Budgets  # in money, its own and its tier's together
    key_limits: dict[BackendGroup, GroupLimits]  # of each of its keys that has no own
    warnings: tuple[str, ...]  # of models that its budgets do not count
    configured: bool  # by the configuration, so not to be changed here
    active_keys: int  # made at run time, and of the configuration
    created_at: int


class TierView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows a tier, and how many tenants have it."""

    name: str
    limits: dict[BackendGroup, GroupLimits]
    key_limits: LimitsOfKey  # of each key of its tenants
    budgets: Budgets  # in money, of each of its tenants
    weight: float
    tenants: int


class DeletedTenant(msgspec.Struct, frozen=True, kw_only=True):
    """Tells that a tenant is gone, with its keys."""

    id: str
    deleted: bool = True
    keys: int


class ErasedTenant(msgspec.Struct, frozen=True, kw_only=True):
    """Tells that nothing is stored any more of a tenant's requests and answers."""

    id: str
    erased: bool = True
    keys: int  # in Redis, that were erased


class DeletedTier(msgspec.Struct, frozen=True, kw_only=True):
    """Tells that a tier is gone."""

    name: str
    deleted: bool = True


@get("/tenants")
async def list_tenants(request: AnyRequest, contains: FromQuery[str] = "") -> list[TenantView]:
    """Lists tenants by their ids, 1,000 at most: all, or those whose id contains a text."""
    found = (one for one in _tenant_view(request).tenants.values() if contains in one.id)
    tenants = sorted(found, key=lambda record: record.id)
    return [_view(request, record) for record in tenants[:MAX_LISTED]]


@get("/tenants/{tenant_id:str}")
async def get_tenant(request: AnyRequest, tenant_id: FromPath[str]) -> TenantView:
    """Shows one tenant."""
    return _view(request, _find(request, tenant_id))


@post("/tenants")
async def create_tenant(request: AnyRequest, data: JSONBody[NewTenant]) -> TenantView:
    """Make a tenant; it has no keys yet. 409 if an earlier one of this id left stored responses.

    The same request again, as after a 503, is answered as the first until the tenant has a key.
    """
    # A tenant whose reply was lost may be there, and nothing tells this process of it yet.
    await services_of(request).access.tenant_store.catch_up()
    given = msgspec.structs.asdict(data)
    keeps_data = given.pop("keep_data")
    record = TenantRecord(**given, created_s=services_of(request).gw.wall_s())
    made = _tenant_view(request).tenants.get(data.id)
    if made is not None and not _is_as_made(request, made, record):
        raise ProtocolError("conflict", f"There is a tenant '{data.id}' already. Change that one.")
    if not keeps_data and TENANT_ID.fullmatch(data.id):
        await _begin_without_data(request, data.id)
    if made is None:
        await _keep(request, "tenants.create", record)
    return _view(request, record if made is None else made)


@patch("/tenants/{tenant_id:str}")
async def change_tenant(
    request: AnyRequest, tenant_id: FromPath[str], data: JSONBody[TenantChange]
) -> TenantView:
    """Change a tenant; it holds for live connections from their next task on."""
    # A change whose reply was lost may have landed, and nothing tells this process of it yet.
    await services_of(request).access.tenant_store.catch_up()
    record = _find(request, tenant_id)
    _check_not_configured(request, tenant_id)
    given = msgspec.structs.asdict(data)
    changes = {name: value for name, value in given.items() if value is not UNSET}
    if isinstance(data.limits, dict):  # limit by limit, and not group by group as the others
        changes["limits"] = {
            group: None if own is None else _changed_limits(record.limits.get(group, {}), own)
            for group, own in data.limits.items()
        }
    for name in ("limits", "budgets", "key_limits"):
        if name in changes:
            changes[name] = changed_entries(getattr(record, name), changes[name])
    record = msgspec.structs.replace(record, **changes)
    await _keep(request, "tenants.set", record)
    return _view(request, record)


@delete("/tenants/{tenant_id:str}", status_code=200)
async def delete_tenant(request: AnyRequest, tenant_id: FromPath[str]) -> DeletedTenant:
    """Delete a tenant, its keys and its pools; what runs under them ends."""
    services = services_of(request)
    await services.access.tenant_store.catch_up()  # no key of it may be left behind
    _find(request, tenant_id)
    _check_not_configured(request, tenant_id)
    names = [f"key:{key.id}" for key in _tenant_view(request).keys_of(tenant_id)]
    gone = dict.fromkeys([*names, f"tenant:{tenant_id}"], b"")
    await write_records(request, "tenants.delete", tenant_id, gone)
    await services.gw.pools.forget(tenant_id)
    return DeletedTenant(id=tenant_id, keys=len(names))


@delete("/tenants/{tenant_id:str}/data", status_code=200)
async def erase_tenant(request: AnyRequest, tenant_id: FromPath[str]) -> ErasedTenant:
    """Erase what is stored of a tenant's requests and answers, also of one that was deleted.

    The usage ledger stays, as bills rest on it; it has no text. 404 if there is no such tenant, and
    nothing was stored of one.
    """
    if not TENANT_ID.fullmatch(tenant_id):
        raise ProtocolError("not_found", f"No tenant can be called '{tenant_id[:80]}'.")
    services = services_of(request)
    await services.access.tenant_store.catch_up()
    is_known = tenant_id in _tenant_view(request).tenants
    await services.forget(tenant_id)  # first, so that nothing is stored again
    num_keys = await services.gw.store.erase(tenant_id)
    num_keys += await services.kept_answers.erase(tenant_id)
    was_learned = await services.learned.erase(tenant_id)
    await services.erasures["tenants"].announce(tenant_id)
    await services.forget(tenant_id)  # what was learned meanwhile
    if not is_known and not num_keys and not was_learned:
        message = f"No tenant '{tenant_id}' is known, and nothing is stored of one by that name."
        raise ProtocolError("not_found", message)
    await write_records(request, "tenants.erase", tenant_id, {})
    return ErasedTenant(id=tenant_id, keys=num_keys)


@get("/tiers")
async def list_tiers(request: AnyRequest) -> list[TierView]:
    """Lists all tiers."""
    return [_tier_view(request, name, tier) for name, tier in _tenant_view(request).tiers.items()]


@put("/tiers/{name:str}")
async def set_tier(
    request: AnyRequest, name: FromPath[str], data: JSONBody[TierConfig]
) -> TierView:
    """Make a tier, or change one, also one of the configuration; its tenants follow at once."""
    fault = fault_of_tier(name, data)
    if fault is not None:
        raise ProtocolError("invalid_value", fault.says, param=fault.field)
    record = {f"tier:{name}": msgspec.json.encode(data)}
    await write_records(request, "tiers.set", name, record)
    return _tier_view(request, name, data)


@delete("/tiers/{name:str}", status_code=200)
async def delete_tier(request: AnyRequest, name: FromPath[str]) -> DeletedTier:
    """Delete a tier; one of the configuration is as it is configured again."""
    tenant_view = _tenant_view(request)
    if not tenant_view.raw(f"tier:{name}"):
        message = f"No tier '{name[:80]}' was made here. Configured ones stay."
        raise ProtocolError("not_found", message)
    users = [record.id for record in tenant_view.tenants.values() if record.tier == name]
    if users and not tenant_view.is_configured_tier(name):
        message = f"Tier '{name}' has {len(users)} tenants, such as '{users[0]}'. Move them first."
        raise ProtocolError("conflict", message)
    await write_records(request, "tiers.delete", name, {f"tier:{name}": b""})
    return DeletedTier(name=name)


HANDLERS: list[Any] = [
    *(list_tenants, get_tenant, create_tenant, change_tenant, delete_tenant),
    erase_tenant,
    *(list_tiers, set_tier, delete_tier),
]


def _tenant_view(request: AnyRequest) -> TenantsView:
    return services_of(request).access.keys.tenant_view


def _find(request: AnyRequest, tenant_id: str) -> TenantRecord:
    record = _tenant_view(request).tenants.get(tenant_id)
    if record is None:
        raise no_tenant(request, tenant_id)
    return record


def _check_not_configured(request: AnyRequest, tenant_id: str) -> None:
    if tenant_id in _tenant_view(request).configured:
        message = f"Tenant '{tenant_id}' stands in the configuration. Change it there."
        raise ProtocolError("conflict", message)


def _changed_limits(
    own: Mapping[str, int | None], changes: Mapping[str, LimitChange]
) -> dict[str, int | None] | None:
    """Returns a tenant's own limits of a group; None: it has none any more."""
    wanted = {**own, **changes}
    return {name: limit for name, limit in wanted.items() if limit != "tier"} or None


def _budgets_of_tier(tenant_view: TenantsView, name: str) -> Budgets:
    tier = tenant_view.tiers.get(name)
    return {} if tier is None else tier.budgets


def _is_as_made(request: AnyRequest, made: TenantRecord, record: TenantRecord) -> bool:
    """Says whether a tenant is what a request would make, and has been nobody's so far."""
    tenant_view = _tenant_view(request)
    if made.id in tenant_view.configured or any(tenant_view.keys_of(made.id)):
        return False
    return made == msgspec.structs.replace(record, created_s=made.created_s)


async def _begin_without_data(request: AnyRequest, tenant_id: str) -> None:
    """Refuses an id of which something is stored, and resets what was learned of its outcomes.

    Nothing is erased unasked: the tenant may have been moved here from the configuration.
    """
    services = services_of(request)
    if await services.gw.store.has_any(tenant_id) or await services.kept_answers.has_any(tenant_id):
        raise ProtocolError(
            "conflict",
            f"An earlier tenant '{tenant_id}' left stored responses that this one would find. "
            f"Erase them (`lanewise tenants erase {tenant_id}`), or hand them on (--keep-data, or "
            "'keep_data': true).",
            param="keep_data",
        )
    await services.learned.erase(tenant_id)


async def _keep(request: AnyRequest, action: str, record: TenantRecord) -> None:
    fault = fault_of(record, _tenant_view(request).tiers)
    if fault is not None:
        raise ProtocolError("invalid_value", fault.says, param=fault.field)
    records = {f"tenant:{record.id}": msgspec.json.encode(record)}
    await write_records(request, action, record.id, records)


def _view(request: AnyRequest, record: TenantRecord) -> TenantView:
    tenant_view = _tenant_view(request)
    tenant = tenant_view.tenant(record.id)
    assert tenant is not None  # it was found, or just written
    services = services_of(request)
    now_s = services.gw.wall_s()
    made = sum(key.state(now_s) == "active" for key in tenant_view.keys_of(record.id))
    configured = (len(each.keys) for each in services.config.tenants if each.id == record.id)
    return TenantView(
        id=record.id,
        tier=record.tier,
        limits=tenant.limits,
        weight=tenant.weight,
        own_limits=record.limits,
        access=record.access,
        store=record.store,
        budgets={**_budgets_of_tier(tenant_view, record.tier), **record.budgets},
        key_limits=tenant.limits_per_key,
        warnings=budget_warnings(request, tenant),
        configured=record.id in tenant_view.configured,
        active_keys=made + sum(configured),
        created_at=record.created_s,
    )


def _tier_view(request: AnyRequest, name: str, tier: Tier) -> TierView:
    users = sum(record.tier == name for record in _tenant_view(request).tenants.values())
    return TierView(
        name=name,
        limits=tier.limits,
        key_limits=tier.key_limits,
        budgets=tier.budgets,
        weight=tier.weight,
        tenants=users,
    )
