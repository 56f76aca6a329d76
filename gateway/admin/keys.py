"""`/admin/keys` makes, lists, rotates and revokes tenants' keys; a key is shown once, when made.

This is an edge.
"""

import secrets
from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Any

import msgspec
from litestar import get, patch, post
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta

from backends.contract import BackendGroup
from gateway.admin.guard import admin_of, changed_entries, no_tenant, write_records
from gateway.config.keys import (
    ID_BYTES,
    MAX_NAME_CHARS,
    SECRET_BYTES,
    KeyRecord,
    KeyState,
    digest_of,
    new_key,
)
from gateway.config.tenants import MAX_LISTED, KeyLimits, LimitsOfKey
from gateway.http.services import Services, services_of
from gateway.http.streams import AnyRequest
from gateway.wire.errors import ProtocolError

MAX_KEYS = 100  # active ones of a tenant
MAX_FORGOTTEN = 100  # ended keys deleted with each new key
DEAD_KEPT_S = 30 * 86_400  # how long a key is listed after it ended
MAX_LIFE_S = 10 * 365 * 86_400

Seconds = Annotated[int, Meta(ge=0, le=MAX_LIFE_S)]


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Says what to make a key for."""

    tenant: str
    name: Annotated[str, Meta(max_length=MAX_NAME_CHARS)] = ""
    expires_in_s: Annotated[int, Meta(ge=1, le=MAX_LIFE_S)] | None = None  # None: never
    limits: LimitsOfKey = {}  # its own, by group instead of those of each key of its tenant


class KeyChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sets the key's own limits; null gives a group, or all, back to what its tenant's keys get."""

    limits: dict[BackendGroup, KeyLimits | None] | None


class Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Says how to replace a key."""

    overlap_s: Seconds = 86_400  # how long the old one holds beside the new one
    # None: the new one ends when the old one would have.
    expires_in_s: Annotated[int, Meta(ge=1, le=MAX_LIFE_S)] | None = None


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows a key without its secret; times are Unix seconds."""

    id: str
    tenant: str
    name: str
    state: KeyState
    created_at: int
    created_by: str
    expires_at: int | None
    revoked_at: int | None
    last_used_at: int | None  # to about a minute
    replaces: str | None
    limits: LimitsOfKey  # its own


class MadeKey(msgspec.Struct, frozen=True, kw_only=True):
    """Shows a new key, this only time."""

    key: str
    record: KeyView


@get("/keys")
async def list_keys(request: AnyRequest, tenant: FromQuery[str | None] = None) -> list[KeyView]:
    """Lists keys, the newest first: of one tenant, or of all. Those that ended stay for 30 days."""
    services = services_of(request)
    tenant_view = services.access.keys.tenant_view
    records = list(tenant_view.keys.values() if tenant is None else tenant_view.keys_of(tenant))
    if tenant is not None and not records and tenant not in tenant_view.tenants:
        raise no_tenant(request, tenant)
    by_age = sorted(records, key=lambda record: (record.created_s, record.id), reverse=True)
    newest = by_age[:MAX_LISTED]
    return await _views(services, newest)


@post("/keys")
async def create_key(request: AnyRequest, data: JSONBody[NewKey]) -> MadeKey:
    """Make a key for a tenant."""
    services = services_of(request)
    if services.access.keys.tenant_view.tenant(data.tenant) is None:
        raise ProtocolError("not_found", f"No tenant '{data.tenant[:80]}'. Create it first.")
    dead = _dead(services)
    others = _gone(dead)
    tenant = services.access.keys.tenant_view.raw(f"tenant:{data.tenant}")
    if tenant:  # it must still be there when the key is written
        others[f"tenant:{data.tenant}"] = tenant
    lives_s = data.expires_in_s
    made = await _make(
        request,
        "keys.create",
        data.tenant,
        data.name,
        None if lives_s is None else services.gw.wall_s() + lives_s,
        others,
        limits=data.limits,
    )
    await _forget(services, dead)
    return made


@patch("/keys/{key_id:str}")
async def change_key(
    request: AnyRequest, key_id: FromPath[str], data: JSONBody[KeyChange]
) -> KeyView:
    """Change a key's own limits; they hold for live connections from their next task on."""
    services = services_of(request)
    record = _find(services, key_id)
    limits = changed_entries(record.limits, data.limits)
    record = msgspec.structs.replace(record, limits=limits)
    await _write(request, "keys.set", record, {})
    return (await _views(services, [record]))[0]


@post("/keys/{key_id:str}/rotate")
async def rotate_key(
    request: AnyRequest, key_id: FromPath[str], data: JSONBody[Rotation]
) -> MadeKey:
    """Make a key in another's place; the old one holds for `overlap_s` more.

    Without `expires_in_s` the new one ends when the old one would have.
    """
    services = services_of(request)
    old = _find(services, key_id)
    now_s = services.gw.wall_s()
    if old.state(now_s) != "active":
        message = f"Key '{key_id}' is {old.state(now_s)}: create a new one instead."
        raise ProtocolError("conflict", message)
    ends_s = now_s + data.overlap_s
    if old.not_after_s is not None:
        ends_s = min(ends_s, old.not_after_s)
    ending = _encoded(msgspec.structs.replace(old, not_after_s=ends_s))
    dead = _dead(services)
    made = await _make(
        request,
        "keys.rotate",
        old.tenant_id,
        old.name,
        _own_end_s(services, old) if data.expires_in_s is None else now_s + data.expires_in_s,
        ending | _gone(dead),
        limits=old.limits,
        replaces=old.id,
    )
    await _forget(services, dead)
    return made


@post("/keys/{key_id:str}/revoke", status_code=200)
async def revoke_key(request: AnyRequest, key_id: FromPath[str]) -> KeyView:
    """End a key now, and what runs under it. Doing it again changes nothing."""
    services = services_of(request)
    record = _find(services, key_id)
    if record.revoked_s is None:
        record = msgspec.structs.replace(record, revoked_s=services.gw.wall_s())
        await _write(request, "keys.revoke", record, {})
    return (await _views(services, [record]))[0]


HANDLERS: list[Any] = [list_keys, create_key, change_key, rotate_key, revoke_key]


async def _make(
    request: AnyRequest,
    action: str,
    tenant_id: str,
    name: str,
    not_after_s: int | None,
    others: dict[str, bytes],
    *,
    limits: LimitsOfKey,
    replaces: str | None = None,
) -> MadeKey:
    """Makes a key, and writes it together with other records."""
    services = services_of(request)
    peppers, now_s = services.access.peppers, services.gw.wall_s()
    if peppers.current is None:
        message = (
            "No pepper to keep keys under: set LANEWISE_KEY_PEPPERS, or auth.peppers_path, to "
            "version:secret on every gateway, and start it again."
        )
        raise ProtocolError("conflict", message)
    tenant_view = services.access.keys.tenant_view
    num_active = sum(key.state(now_s) == "active" for key in tenant_view.keys_of(tenant_id))
    if num_active >= MAX_KEYS:
        message = f"Tenant '{tenant_id}' has {num_active} keys that hold. Revoke one first."
        raise ProtocolError("conflict", message)
    chance = secrets.token_bytes(ID_BYTES + SECRET_BYTES)
    key_id, key = new_key(services.config.auth.environment, chance)
    record = KeyRecord(
        id=key_id,
        tenant_id=tenant_id,
        digest=digest_of(key, peppers.by_version[peppers.current]),
        pepper=peppers.current,
        created_s=now_s,
        created_by=admin_of(request).name,
        name=name,
        not_after_s=not_after_s,
        limits=limits,
        replaces=replaces,
    )
    await _write(request, action, record, others)
    return MadeKey(key=key, record=(await _views(services, [record]))[0])


def _find(services: Services, key_id: str) -> KeyRecord:
    record = services.access.keys.tenant_view.keys.get(key_id)
    if record is None:
        message = (
            f"No key '{key_id[:80]}' was made at run time: `lanewise keys list` has their ids. "
            "Configured keys are changed in the configuration."
        )
        raise ProtocolError("not_found", message)
    return record


def _own_end_s(services: Services, key: KeyRecord) -> int | None:
    """Returns when a key ends that was not rotated; one that was has left that to the next."""
    keys = services.access.keys.tenant_view.keys_of(key.tenant_id)
    by_age = sorted(keys, key=lambda each: each.created_s)
    following = {each.replaces: each for each in by_age if each.replaces is not None}
    while (later := following.pop(key.id, None)) is not None:
        key = later
    return key.not_after_s


def _dead(services: Services) -> list[KeyRecord]:
    """Returns keys that ended long ago, some at a time, so that what is kept does not pile up."""
    now_s = services.gw.wall_s()
    keys = services.access.keys.tenant_view.keys.values()
    ends = ((key, key.revoked_s or key.not_after_s) for key in keys)
    dead = (key for key, end_s in ends if end_s and end_s + DEAD_KEPT_S < now_s)
    return list(islice(dead, MAX_FORGOTTEN))


def _gone(dead: Iterable[KeyRecord]) -> dict[str, bytes]:
    return {f"key:{key.id}": b"" for key in dead}


async def _forget(services: Services, dead: Iterable[KeyRecord]) -> None:
    """Deletes the pools of keys whose records are gone."""
    by_tenant: dict[str, list[str]] = {}
    for key in dead:
        by_tenant.setdefault(key.tenant_id, []).append(key.id)
    for tenant_id, key_ids in by_tenant.items():
        await services.gw.pools.forget(tenant_id, key_ids)


def _encoded(record: KeyRecord) -> dict[str, bytes]:
    return {f"key:{record.id}": msgspec.json.encode(record)}


async def _write(
    request: AnyRequest, action: str, record: KeyRecord, others: dict[str, bytes]
) -> None:
    subject = f"{record.tenant_id}/{record.id}"
    await write_records(request, action, subject, others | _encoded(record))


async def _views(services: Services, records: list[KeyRecord]) -> list[KeyView]:
    now_s = services.gw.wall_s()
    access = services.access
    used_s = await access.tenant_store.last_used_s([record.id for record in records])
    used_s |= {r.id: access.keys.used_s[r.id] for r in records if r.id in access.keys.used_s}
    return [
        KeyView(
            id=record.id,
            tenant=record.tenant_id,
            name=record.name,
            state=record.state(now_s),
            created_at=record.created_s,
            created_by=record.created_by,
            expires_at=record.not_after_s,
            revoked_at=record.revoked_s,
            last_used_at=used_s.get(record.id),
            replaces=record.replaces,
            limits=record.limits,
        )
        for record in records
    ]
