"""The context of a request: what it continues, joined with what it brings."""

import msgspec

from backends.contract import ContextItem
from gateway.errors import ProtocolError
from gateway.gateway import Gateway
from gateway.intake import make_task
from gateway.items import ItemReference
from gateway.job import Job
from router.task import Task


async def load_task(gw: Gateway, job: Job) -> Task:
    """Join a request with the context it continues.

    Raises:
        ProtocolError: The parent, or an item it refers to, is not to be found.
    """
    if gw.draining:
        message = "The server is restarting. Connect again and resend. Try again in 1s."
        raise ProtocolError("server_draining", message, retry_after_us=1_000_000)
    parent_id = job.parsed.body.previous_response_id
    if job.parent is None and parent_id is not None:
        context = await gw.store.context(job.tenant.id, parent_id)
        if context is None:
            raise ProtocolError(
                "previous_response_not_found",
                f"Previous response '{parent_id[:80]}' not found. Send the full context as 'input' "
                "without 'previous_response_id'.",
                param="previous_response_id",
            )
        job.parent, job.last_backend = context.items, context.backend
        job.lineage = context.lineage
    parent = job.parent or ()
    own = [await _resolve(gw, job, parent, entry) for entry in job.parsed.input.items]
    num_own_tokens = sum(entry.num_tokens for entry in own)
    task = make_task(
        job.parsed,
        (*parent, *own),
        job.tenant,
        last_backend=job.last_backend,
        arrived_us=job.arrived_us,
        arrived_unix_s=gw.unix_s(),
    )
    if task.last_backend is not None:
        held_tokens = task.request.num_prompt_tokens - num_own_tokens
        return msgspec.structs.replace(task, held_tokens=held_tokens)
    if parent_id is None:
        # A client that sends its whole context again names no parent, yet its KV prefix is there.
        warm_for = gw.experience.warm_for(task) or (None, 0)
        holder, held_tokens = gw.experience.holder_of(task) or warm_for[0], warm_for[1]
        return msgspec.structs.replace(task, last_backend=holder, held_tokens=held_tokens)
    return task


async def _resolve(
    gw: Gateway, job: Job, parent: tuple[ContextItem, ...], entry: ContextItem | ItemReference
) -> ContextItem:
    """An item itself, or the one that a reference names."""
    if isinstance(entry, ContextItem):
        return entry
    for known in parent:
        if known.item.id == entry.id:
            return known
    # Our item ids carry their response's id: prefix, 48 hex digits, 4 of the item's place.
    _, _, tail = entry.id.partition("_")
    stored = await gw.store.load(job.tenant.id, f"resp_{tail[:-4]}") if len(tail) > 4 else None
    for known in (*stored.input, *stored.output) if stored else ():
        if known.item.id == entry.id:
            return known
    message = f"Item '{entry.id[:80]}' not found. Send the item itself."
    raise ProtocolError("item_not_found", message, param="input")
