"""Teaches the router from tasks' ends and clients' feedback. This is an edge."""

from typing import Annotated

import msgspec
from msgspec import Meta

from backends.contract import BackendGroup
from gateway.core.gateway import Gateway
from gateway.task.stages import EndedTask
from gateway.wire.errors import ProtocolError
from gateway.wire.events import decode
from router.classify.task import Tenant
from router.decide.decision import Reason
from router.learn.pending_outcomes import PendingOutcome

MAX_BODY_BYTES = 4_096


class Feedback(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Is the body of `POST /v1/responses/{id}/feedback`."""

    success: bool  # whether the answer did what was asked
    # How good it was, 0 to 1; it counts instead of `success` where both are given.
    rating: Annotated[float, Meta(ge=0, le=1)] | None = None
    # Whether the fast engine's part alone would have done; where both engines answered.
    fast_success: bool | None = None


_PINNED = (Reason.MODEL, Reason.HINT)  # the client's own choice


def note_end(gw: Gateway, ended: EndedTask) -> PendingOutcome | None:
    """Remembers a whole answer until its outcome is known; None if nothing is to be learned."""
    running, finished = ended.running, ended.response
    if running is None or finished is None or ended.answered_by is None:
        return None  # nothing was asked of an engine, or it was refused
    if finished.ending.status != "completed" and finished.ending.reason != "max_output_tokens":
        return None
    task, run, chosen = running.task, running.run, running.admitted.chosen
    backend = ended.answered_by
    gw.experience.note_held(task, backend)
    if not gw.state.policy.for_tenant(task.tenant.id).tradeoff.learn:
        return None
    answered_by = gw.backends[backend].info.group
    others: tuple[BackendGroup, ...] = ()
    if len(run.branches) > 1 or run.continued:  # else the one that answered is the only one
        groups = {gw.backends[name].info.group for name, _, _ in run.branches.timings()}
        others = tuple(sorted(groups - {answered_by}))
    return gw.experience.note_answer(
        task,
        running.admitted.decision.task_class,
        finished.output,
        answered_by=answered_by,
        others=others,
        backend=backend,
        pinned=chosen.reason in _PINNED,
    )


async def take_feedback(gw: Gateway, tenant: Tenant, response_id: str, body: bytes) -> Feedback:
    """Learns from a client's feedback on a response; repeating it changes nothing.

    Raises:
        ProtocolError: The body is not valid, the response is unknown or had other feedback, or
            the store does not answer.
    """
    if len(body) > MAX_BODY_BYTES:
        raise ProtocolError("message_too_large", f"Feedback has at most {MAX_BODY_BYTES} bytes.")
    feedback = decode(body, Feedback)
    pending = gw.experience.pending_outcomes.get(tenant.id, response_id)
    if pending is None:
        stored = await gw.store.load(tenant.id, response_id)
        pending = None if stored is None else stored.pending
    if pending is None:
        message = (
            f"Nothing can be learned of response '{response_id[:80]}': it is unknown or too old, "
            "it did not complete, or the policy does not learn."
        )
        raise ProtocolError("response_not_found", message, param="response_id")
    if feedback.fast_success is not None and "fast" not in pending.others:
        message = "'fast_success' is about a response that both engines answered. Leave it out."
        raise ProtocolError("invalid_value", message, param="fast_success")
    said = msgspec.json.encode(feedback)
    is_first, kept = await gw.store.note_feedback(tenant.id, response_id, said)
    if is_first:
        gw.experience.teach(pending, "feedback", _success(pending, feedback))
    elif kept != said:
        message = "This response has had other feedback. The first word counts."
        raise ProtocolError("conflict", message, param="response_id")
    return feedback


def _success(pending: PendingOutcome, feedback: Feedback) -> dict[BackendGroup, float]:
    rating = float(feedback.success) if feedback.rating is None else feedback.rating
    success: dict[BackendGroup, float] = {pending.answered_by: rating}
    if feedback.fast_success is not None:
        success["fast"] = float(feedback.fast_success)
    return success
