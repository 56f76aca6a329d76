"""Loads the context of a request: what it continues, and its own input. This is an edge."""

import msgspec

from backends.contract import Compaction, ContextItem
from backends.prompt import PIECE_ITEMS
from gateway.core.gateway import Gateway
from gateway.core.job import Job
from gateway.store.stored_response import Lineage, Uncontinued
from gateway.task.cut_calls import cut_calls
from gateway.task.own_input import make_prefix
from gateway.task.stages import LoadedTask
from gateway.task.truncation import newest_items, room_tokens
from gateway.wire.compaction import Plan, Skipped, plan_compaction, plan_whole, unfolded
from gateway.wire.errors import ProtocolError, draining, too_many_bytes
from gateway.wire.items import ItemReference
from gateway.wire.requests import make_task
from gateway.wire.sealing import MAX_OPENED_BYTES, SealError, folded_from, is_sealed_here
from router.classify.task import Task, for_run
from router.decide.continuity import may_move


async def load(gw: Gateway, job: Job, queued_us: int) -> LoadedTask:
    """Joins a request with the context it continues, and plans a compaction if needed.

    Raises `ProtocolError` if the parent, or an item that it refers to, is not found.
    """
    task, parsed = await load_task(gw, job, queued_us), job.parsed
    plan: Plan | Skipped | None = None
    if not parsed.answers:
        plan = plan_whole(task, gw.max_context_tokens)
    elif parsed.compacts and task.generate:
        plan = plan_compaction(
            task,
            parsed.compact_threshold_tokens,
            max_compactions=gw.max_compactions,
            window_tokens=gw.max_context_tokens,
        )
    return LoadedTask(task, plan, queued_us)


async def load_task(gw: Gateway, job: Job, queued_us: int = 0) -> Task:
    """Joins a request with the context it continues; it arrived `queued_us` ago.

    Raises `ProtocolError` if the parent, or an item that it refers to, is not found.
    """
    if gw.state.draining:
        raise draining()
    arrived_unix_s = gw.unix_s() - queued_us / 1e6
    parent_id = job.parsed.body.previous_response_id
    if job.parent is None and parent_id is not None:
        context = await gw.store.context(job.tenant.id, parent_id)
        if context is None or isinstance(context, Uncontinued):
            raise _not_continued(parent_id, context)
        job.parent, job.last_backend, job.lineage = context.items, context.backend, context.lineage
    parent = job.parent or ()
    given = job.parsed.input.items
    own = [entry for entry in given if isinstance(entry, ContextItem)]
    if len(own) == len(given):
        items = (*parent, *own)
    else:  # some are to be found by their ids, or opened
        found = await _own_items(gw, job, parent)
        items = _joined(gw, job, parent, found)
        own = [entry for entry in found if isinstance(entry, ContextItem)]
    left_out = cut_calls(items)
    if left_out:
        items = _without(left_out, job, items)
    task = await _task_of(job, items, arrived_unix_s)
    if job.parsed.body.truncation == "auto":
        task = await _truncated(gw, job, task)
    run = gw.experience.runs.run_of(task.tenant.id, task.request)
    began_turn = None
    if (state := task.hints.agent.turn_state) is not None:
        began_turn = _began_turn(gw, task, state)
    holder, held_tokens = task.last_backend, 0
    if holder is not None:
        num_own_tokens = sum([each.num_tokens for each in own])
        held_tokens = max(0, task.request.num_prompt_tokens - num_own_tokens)
    elif parent_id is None:
        # A client that resends its whole context names no parent, but its KV prefix is cached.
        warm_for = gw.experience.warm_for(task) or (None, 0)
        holder = gw.experience.holder_of(task) or began_turn or warm_for[0]
        held_tokens = warm_for[1]
    task = msgspec.structs.replace(
        task,
        last_backend=holder,
        held_tokens=held_tokens,
        held_turn=began_turn is not None,
        run=run,
    )
    if may_move(run):
        task = msgspec.structs.replace(task, also_held=gw.experience.also_held(task))
    return task


def _not_continued(parent_id: str, found: Uncontinued | None) -> ProtocolError:
    """Makes the error for a parent that is not there, or that cannot be continued."""
    what = "not found" if found is None else f"cannot be continued: {found.why}"
    message = (
        f"Previous response '{parent_id[:80]}' {what}. Send the full context as 'input' without "
        "'previous_response_id'."
    )
    return ProtocolError("previous_response_not_found", message, param="previous_response_id")


def _without(
    left_out: frozenset[int], job: Job, items: tuple[ContextItem, ...]
) -> tuple[ContextItem, ...]:
    """Leaves out the calls that nobody can answer."""
    if min(left_out) < job.lineage.num_items:  # the stored context is no longer its beginning
        job.lineage = msgspec.structs.replace(job.lineage, ids=(), num_items=0)
    return tuple(entry for number, entry in enumerate(items) if number not in left_out)


async def _task_of(job: Job, items: tuple[ContextItem, ...], arrived_unix_s: float) -> Task:
    prefix, tenant = None, job.tenant
    if len(items) > PIECE_ITEMS:
        prefix = await make_prefix(job.parsed, items, tenant.id)
    if tenant.run_account is not None:
        tenant = for_run(tenant, job.parsed.hints.metadata.get("run"))
    return make_task(
        job.parsed,
        items,
        tenant,
        last_backend=job.last_backend,
        arrived_us=job.arrived_us,
        arrived_unix_s=arrived_unix_s,
        prefix=prefix,
    )


async def _truncated(gw: Gateway, job: Job, task: Task) -> Task:
    """Drops the oldest items of a context that fits no engine."""
    excess_tokens = task.request.num_prompt_tokens - room_tokens(task, gw.infos.values())
    if excess_tokens <= 0:
        return task
    job.lineage = Lineage()  # the stored context is no longer its beginning
    items = newest_items(task.request.items, excess_tokens)
    return await _task_of(job, items, task.arrived_unix_s)


def _began_turn(gw: Gateway, task: Task, state: str) -> str | None:
    """Returns the backend that began the request's turn, as its client shows by its state."""
    backend = gw.seals.turn_backend(task.tenant.id, state)
    info = gw.infos.get(backend or "")
    return backend if info is not None and info.group in task.tenant.limits else None


def _joined(
    gw: Gateway,
    job: Job,
    parent: tuple[ContextItem, ...],
    own: list[ContextItem | Compaction],
) -> tuple[ContextItem, ...]:
    """Joins the whole context, and opens the compactions in it that are ours.

    Raises `ProtocolError` if a compaction cannot be opened.
    """
    items = list(parent)
    for entry in own:
        item = entry.item if isinstance(entry, ContextItem) else entry
        if isinstance(item, Compaction) and is_sealed_here(item.encrypted_content):
            try:
                opened = gw.seals.unseal(
                    job.tenant.id, item.encrypted_content, MAX_OPENED_BYTES - job.opened_bytes
                )
            except SealError as error:
                message = (
                    f"The compaction item {item.id or ''!r:.80} cannot be opened: {error}. "
                    "Send the items that it stands for."
                )
                raise ProtocolError("invalid_value", message, param="input") from None
            _count_opened(gw, job, len(opened))
            items = list(unfolded(tuple(items), item, folded_from(opened)))
            job.lineage = Lineage()  # the stored context is no longer its beginning
        else:
            assert isinstance(entry, ContextItem)
            items.append(entry)
    return tuple(items)


def _count_opened(gw: Gateway, job: Job, num_bytes: int) -> None:
    """Counts what a job holds besides its request; raises if its tenant has too much in flight."""
    in_flight = gw.budgets.in_flight
    if not in_flight.take(job.tenant.id, num_bytes):
        raise too_many_bytes(in_flight.max_tenant_bytes)
    job.opened_bytes += num_bytes


def give_back_opened(gw: Gateway, job: Job) -> None:
    """Counts what the job's compactions held no more."""
    if job.opened_bytes:
        gw.budgets.in_flight.give(job.tenant.id, job.opened_bytes)
        job.opened_bytes = 0


async def _own_items(
    gw: Gateway, job: Job, parent: tuple[ContextItem, ...]
) -> list[ContextItem | Compaction]:
    """Returns the request's own items, and in place of references what they name."""
    own: list[ContextItem | Compaction] = []
    by_id: dict[str | None, ContextItem] | None = None
    for entry in job.parsed.input.items:
        if isinstance(entry, ItemReference):
            if by_id is None:
                by_id = {known.item.id: known for known in reversed(parent)}
            own.append(by_id.get(entry.id) or await _stored(gw, job, entry))
        else:
            own.append(entry)
    return own


async def _stored(gw: Gateway, job: Job, entry: ItemReference) -> ContextItem:
    """Returns the stored item that a reference names."""
    # Our item ids carry their response's id: prefix, 48 hex digits, 4 of the item's index.
    _, _, tail = entry.id.partition("_")
    stored = await gw.store.load(job.tenant.id, f"resp_{tail[:-4]}") if len(tail) > 4 else None
    for known in (*stored.input, *stored.output) if stored else ():
        if known.item.id == entry.id:
            return known
    message = f"Item '{entry.id[:80]}' not found. Send the item itself."
    raise ProtocolError("item_not_found", message, param="input")
