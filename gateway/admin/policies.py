"""`/admin/policies` and `/admin/explain` check, store, compare and activate policies, and say why.

This is an edge.
"""

import difflib
import time
from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.params import JSONBody, Parameter
from msgspec import Meta

from backends.contract import ContextItem
from gateway.admin.decisions import MAX_UNIX_S
from gateway.admin.guard import READS, author_of, no_tenant
from gateway.http.services import Services, services_of
from gateway.http.streams import AnyRequest
from gateway.task.explanation import Explanation, explain_task
from gateway.transport.ids import new_id
from gateway.wire.errors import ProtocolError
from gateway.wire.events import (
    CreateBody,
    Effort,
    Metadata,
    ModelName,
    ReasoningParam,
    ServiceTier,
)
from gateway.wire.requests import make_task, parse_create
from router.policy.diff import PolicyChange, policy_changes
from router.policy.document import Problem
from router.policy.policy import DEFAULT_POLICY, Policy, PolicyError, parse_policy
from router.policy.slips import Known, slips_of
from router.policy.store import (
    MAX_LISTED,
    MAX_VERSION,
    NoSuchVersion,
    PolicyStore,
    Stored,
    read_version,
)
from router.redis.audit import AuditEntry

Version = Annotated[int, Meta(ge=0, le=MAX_VERSION)]
VersionInPath = Annotated[int, Parameter(ge=0, le=MAX_VERSION)]
Comment = Annotated[str, Meta(max_length=500)]
Text = Annotated[str, Meta(max_length=1 << 20)]


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Carries a document as its author wrote it, TOML or JSON."""

    document: Text
    name: Annotated[str, Meta(max_length=256)] = "policy"  # its file's, for messages
    comment: Comment = ""


class Comparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Says what to compare: a document or a version, with a version (null: the one in force)."""

    document: Text | None = None
    name: Annotated[str, Meta(max_length=256)] = "policy"
    version: Version | None = None
    against: Version | None = None


class Activation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Names as `expected` the version that the author knows to be in force; null: whichever is.

    It has to be given, so that nobody undoes unawares what another admin has just changed.
    """

    expected: Version | msgspec.UnsetType | None = msgspec.UNSET
    comment: Comment = ""


class Shadowing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Names the version that decides beside the policy in force, without effect; 0: none does."""

    version: Version
    comment: Comment = ""


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Asks what a document, a version or the policy in force decides for a request."""

    prompt: Text
    tenant: str | None = None  # null: the first of the configuration
    model: ModelName = "auto"
    metadata: Metadata = {}
    reasoning_effort: Effort | None = None
    service_tier: ServiceTier | None = None
    prompt_cache_key: str | None = None  # the conversation, for canaries
    # Unix time, for windows; null: now.
    at: Annotated[float, Meta(ge=0, le=MAX_UNIX_S)] | None = None
    document: Text | None = None
    name: Annotated[str, Meta(max_length=256)] = "policy"
    version: Version | None = None


class CheckView(msgspec.Struct, frozen=True, kw_only=True):
    """Says what is wrong with a document, and what is likely a slip."""

    valid: bool
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


class StoredView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows a document that was stored; nothing has changed yet."""

    author: str  # the admin key's name
    version: int
    is_new: bool  # false: the latest version has the same content
    active: int  # what is in force meanwhile
    warnings: tuple[Problem, ...]


class InForceView(msgspec.Struct, frozen=True, kw_only=True):
    """Says what this process decides by."""

    version: int
    source: str  # configured, store, last_good
    shadow: int


class PoliciesView(msgspec.Struct, frozen=True, kw_only=True):
    """Lists all versions, the latest first, and says which is in force; 0 is the configured one."""

    active: int
    shadow: int
    in_force: InForceView
    versions: list[Stored]


class VersionView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows one version; without `stored` it is the configured policy, or one Redis has lost."""

    version: int
    document: str
    stored: Stored | None
    problems: tuple[Problem, ...] = ()  # why this gateway cannot read it


class DiffView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows what differs in the decisions, and in the text."""

    expected: int  # what is in force: to be sent when the change is put in force
    old: int
    new: int | None  # null: the document sent
    changes: list[PolicyChange]
    diff: str  # unified


class ChangeView(msgspec.Struct, frozen=True, kw_only=True):
    """Says what is in force now, and what was before."""

    before: int
    active: int


@get("/policies")
async def get_policies(request: AnyRequest) -> PoliciesView:
    """Lists all versions, and says which is in force."""
    policies = services_of(request).policies
    state = await policies.store.state()
    versions = await policies.store.versions()
    now = policies.current
    in_force = InForceView(version=now.version, source=now.source, shadow=now.shadow_version)
    return PoliciesView(
        active=state.active, shadow=state.shadow, in_force=in_force, versions=versions
    )


@post("/policies/check", status_code=200, opt=READS)
async def check_policy(request: AnyRequest, data: JSONBody[Submission]) -> CheckView:
    """Lists everything that is wrong with a document."""
    try:
        policy = await _parsed(services_of(request), data)
    except PolicyError as error:
        return CheckView(valid=False, problems=error.problems)
    return CheckView(valid=True, warnings=await _warnings(services_of(request), policy, data))


async def _parsed(services: Services, data: Submission) -> Policy:
    """Parses a document for the backends here. Raises `PolicyError`."""
    models = {info.model for info in services.gw.infos.values()}
    return await services.apart(parse_policy, data.document.encode(), data.name, models)


async def _warnings(services: Services, policy: Policy, data: Submission) -> tuple[Problem, ...]:
    tenant_view, infos = services.access.keys.tenant_view, services.gw.infos
    known = Known(
        tenants=set(tenant_view.tenants),
        tiers=set(tenant_view.tiers),
        models={info.model for info in infos.values()},
        backends={name: info.group for name, info in infos.items()},
    )
    return await services.apart(slips_of, policy, data.document.encode(), data.name, known)


@post("/policies", status_code=200)
async def put_policy(request: AnyRequest, data: JSONBody[Submission]) -> StoredView:
    """Store a document as the next version; nothing changes before it is activated."""
    services = services_of(request)
    policies = services.policies
    content = data.document.encode()
    policy = await _parsed(services, data)
    author = author_of(request)
    version, is_new = await policies.store.put(
        content, author=author, comment=data.comment, floor=policies.highest
    )
    active = (await policies.store.state()).active
    warnings = await _warnings(services, policy, data)
    return StoredView(
        author=author.name, version=version, is_new=is_new, active=active, warnings=warnings
    )


@get("/policies/audit")
async def get_policy_audit(
    request: AnyRequest, limit: Annotated[int, Parameter(ge=1, le=MAX_LISTED)] = 100
) -> list[AuditEntry]:
    """Lists who changed what about policies, the latest first."""
    return await services_of(request).policies.store.audit(limit)


@get("/policies/{version:int}")
async def get_policy(request: AnyRequest, version: VersionInPath) -> VersionView:
    """Returns a version's document; 0: the configured policy, as JSON."""
    services = services_of(request)
    stored, content = await _document(services, version)
    problems: tuple[Problem, ...] = ()
    if stored is not None:
        try:
            await services.apart(read_version, version, content)
        except PolicyError as error:
            problems = error.problems
    document = content.decode(errors="replace")
    return VersionView(version=version, document=document, stored=stored, problems=problems)


async def _document(services: Services, version: int) -> tuple[Stored | None, bytes]:
    """Reads a version; of the one in force that Redis has lost, what this gateway decides by."""
    if version == 0:
        return None, _as_document(services.policies.configured)
    try:
        return await services.policies.store.load(version)
    except (NoSuchVersion, PolicyError):
        current = services.policies.current
        if version != current.version:
            raise
        return None, _as_document(current.policy)


def _as_document(policy: Policy) -> bytes:
    given = _without_nulls(msgspec.to_builtins(policy))
    return msgspec.json.format(msgspec.json.encode(given), indent=2)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(entry) for entry in value]
    return value


@post("/policies/diff", status_code=200, opt=READS)
async def diff_policies(request: AnyRequest, data: JSONBody[Comparison]) -> DiffView:
    """Shows what would change."""
    services = services_of(request)
    old = services.policies.current.version if data.against is None else data.against
    _, old_content = await _document(services, old)
    if data.document is not None:
        new_name, new_content = data.name, data.document.encode()
    else:
        new = services.policies.current.version if data.version is None else data.version
        new_name, (_, new_content) = f"v{new}", await _document(services, new)
    old_policy = await services.apart(parse_policy, old_content, f"v{old}")
    new_policy = await services.apart(parse_policy, new_content, new_name)
    changes = await services.apart(policy_changes, old_policy, new_policy)
    diff = await services.apart(_diff, old_content, f"v{old}", new_content, new_name)
    return DiffView(
        expected=services.policies.current.version,
        old=old,
        new=data.version if data.document is None else None,
        changes=changes,
        diff=diff,
    )


def _diff(old: bytes, old_name: str, new: bytes, new_name: str) -> str:
    """Compares the texts of two documents, as a unified diff."""
    lines = difflib.unified_diff(
        old.decode().splitlines(), new.decode().splitlines(), old_name, new_name
    )
    return "\n".join(line.rstrip("\n") for line in lines)


@post("/policies/{version:int}/activate", status_code=200)
async def activate_policy(
    request: AnyRequest, version: VersionInPath, data: JSONBody[Activation]
) -> ChangeView:
    """Put a version in force, everywhere within a second."""
    policies = services_of(request).policies
    await _check_readable(services_of(request), version)
    before = await _expected(policies.store, data)
    author = author_of(request)
    await policies.store.activate(version, expected=before, author=author, comment=data.comment)
    await policies.refresh()
    return ChangeView(before=before, active=version)


async def _check_readable(services: Services, version: int) -> None:
    """Raises `PolicyError` for a version that would not decide, and `NoSuchVersion` for none."""
    if version > 0:
        _, content = await services.policies.store.load(version)
        await services.apart(read_version, version, content)


async def _expected(store: PolicyStore, data: Activation) -> int:
    if data.expected is msgspec.UNSET:
        message = (
            "`expected` is missing: send the version that is in force as far as you know (`active` "
            "of GET /admin/policies, `expected` of a diff), or null for whichever is."
        )
        raise ProtocolError("missing_required_parameter", message, param="expected")
    return (await store.state()).active if data.expected is None else data.expected


@post("/policies/rollback", status_code=200)
async def roll_policy_back(request: AnyRequest, data: JSONBody[Activation]) -> ChangeView:
    """Put the version in force that was before."""
    policies = services_of(request).policies
    before = await _expected(policies.store, data)
    author = author_of(request)
    try:
        await _check_readable(services_of(request), await policies.store.before(before))
        active = await policies.store.rollback(expected=before, author=author, comment=data.comment)
    except NoSuchVersion as error:
        message = f"Nothing to roll back to: {error}."
        raise ProtocolError("not_found", message) from error
    except PolicyError as error:
        message = (
            f"Not rolled back: this gateway cannot read the version that was before: {error}; "
            "activate another one, or apply your own copy of it."
        )
        raise ProtocolError("invalid_value", message) from error
    await policies.refresh()
    return ChangeView(before=before, active=active)


@post("/policies/shadow", status_code=200)
async def shadow_policy(request: AnyRequest, data: JSONBody[Shadowing]) -> ChangeView:
    """Let a version decide beside the one in force: counted and recorded, without effect."""
    policies = services_of(request).policies
    await _check_readable(services_of(request), data.version)
    before = (await policies.store.state()).shadow
    author = author_of(request)
    await policies.store.shadow(data.version, author=author, comment=data.comment)
    await policies.refresh()
    return ChangeView(before=before, active=data.version)


@post("/explain", status_code=200, opt=READS)
async def explain_prompt(request: AnyRequest, data: JSONBody[Question]) -> Explanation:
    """Says which rule takes a prompt, why each other does not, and where it would go now."""
    services = services_of(request)
    tenant_view = services.access.keys.tenant_view
    first = next(iter((*tenant_view.configured, *sorted(tenant_view.tenants))), "")
    tenant_id = data.tenant or first
    tenant = tenant_view.tenant(tenant_id)
    if tenant is None:
        raise no_tenant(request, tenant_id)
    policy = services.gw.state.policy
    if data.document is not None:
        policy = await services.apart(parse_policy, data.document.encode(), data.name)
        if policy.version == DEFAULT_POLICY.version:  # it names no version, and is not the default
            policy = policy.named(data.name)
    elif data.version is not None:
        _, content = await _document(services, data.version)
        policy = await services.apart(read_version, data.version, content)
    body = CreateBody(
        model=data.model,
        input=data.prompt,
        metadata=data.metadata,
        service_tier=data.service_tier,
        prompt_cache_key=data.prompt_cache_key,
        reasoning=ReasoningParam(effort=data.reasoning_effort),
    )
    parsed = parse_create(body, f"resp_{new_id()}", max_tokens=services.gw.max_context_tokens)
    items = tuple(item for item in parsed.input.items if isinstance(item, ContextItem))
    task = make_task(
        parsed,
        items,
        tenant,
        last_backend=None,
        arrived_us=services.gw.clock_us(),
        arrived_unix_s=time.time() if data.at is None else data.at,
    )
    return explain_task(policy, task, services.gw.backend_stats())


HANDLERS: list[Any] = [
    *(get_policies, check_policy, put_policy, get_policy_audit, get_policy, diff_policies),
    *(activate_policy, roll_policy_back, shadow_policy, explain_prompt),
]
