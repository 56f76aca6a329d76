"""Finds lost responses that other processes keep, and gives them those that clients claim there.

This is an edge.
"""

import asyncio
from collections import OrderedDict

from redis.asyncio import Redis

from backends.contract import ContextItem
from gateway.core.gateway import Gateway
from gateway.core.job import Job, Parent
from gateway.rejoin.handover import Handover
from gateway.rejoin.lost_response import LostResponse, taken_over
from gateway.rejoin.mail import ALL, Mail
from gateway.rejoin.matching import anchor_of, returning_by, settings_of, turn_of
from gateway.rejoin.notes import (
    Beat,
    Claim,
    Finished,
    Gone,
    Granted,
    Identity,
    Lease,
    Left,
    Listens,
    Note,
    Recall,
    Recalled,
    Remembers,
    Told,
)
from gateway.rejoin.rejoins import Key, Outcome, Rejoins
from gateway.rejoin.remote_response import RemoteResponse
from gateway.transport.outbox import Outbox, no_frames
from gateway.wire.events import CreateBody
from gateway.wire.requests import ParsedCreate, parse_create
from gateway.wire.response import unheard
from router.classify.task import Tenant
from router.redis.cancelling import cancelled

MAX_LEASES = 4_096  # of other processes
MAX_HANDOVERS = 1_024  # to other processes
MAX_KEPT = 65_536  # responses that others remember
MAX_RECALLED_TOKENS = 1_000_000  # of a context; Redis cuts who has 32 MB to read of a channel
# The owner has so long to answer; without an answer the request begins anew and is paid twice. An
# owner that is dead is known sooner, so that this is for one that is busy; where none is known, all
# are asked.
CLAIM_S = 3.0
ASK_ALL_S = 1.0


class Elsewhere:
    """Satisfies `gateway.rejoin.rejoins.Others`; `run` carries its notes."""

    def __init__(self, gw: Gateway, redis: Redis, rejoins: Rejoins) -> None:
        self._gw = gw
        self._rejoins = rejoins
        self._mail = Mail(redis, self._take, self._note_dead)
        self._leases: OrderedDict[str, Lease] = OrderedDict()
        self._leases_of_key: dict[Key, dict[int, dict[str, Lease]]] = {}  # by anchor and id
        self._kept: OrderedDict[str, str] = OrderedDict()  # the owners of what others remember
        self._claimed: dict[int, RemoteResponse] = {}
        # Claims and recalls without an answer, and whom they ask.
        self._asked: dict[int, tuple[str, asyncio.Future[Granted | Recalled | None]]] = {}
        self._num_asked = 0
        self._handovers: dict[tuple[str, int], Handover] = {}
        self._flusher = Outbox(gw.flush_timer)  # flushes what is handed over; has no frames

    async def run(self) -> None:
        """Carries notes until cancelled."""
        tasks = (self._mail.listen(), self._mail.deliver(), self._flusher.run(no_frames))
        running = [asyncio.create_task(task) for task in tasks]
        try:
            await asyncio.gather(*running)
        finally:
            await cancelled(*running)

    # What this process keeps

    def announce(self, lost: LostResponse, life_s: float) -> None:
        """Tells all processes who may come back to a response, and for how long."""
        job, seals = lost.job, self._gw.seals
        assert job.request is not None
        if not self._mail.is_listening:
            return
        pause = job.pause
        items = job.request.items if pause is None or pause.context is None else pause.context
        identity = _identity(job)
        lease = Lease(
            job.parsed.id,
            self._mail.inbox,
            *lost.key,
            identity.mac(seals, items),
            len(items),
            self._own_mac(identity, job.parsed),
            life_s,
            _short(anchor_of(items)),
        )
        self._mail.send(ALL, lease)

    def withdraw(self, lost: LostResponse) -> None:
        """Tells all processes that nobody can come back to a response any more."""
        self._mail.send(ALL, Gone(lost.job.parsed.id, self._mail.inbox))

    def announce_memory(self, ids: tuple[str, ...], life_s: float) -> None:
        """Tells all processes which responses of a lost connection can be continued."""
        self._mail.send(ALL, Remembers(self._mail.inbox, ids, life_s))

    def _own_mac(self, identity: Identity, parsed: ParsedCreate) -> bytes:
        own = tuple(each for each in parsed.input.items if isinstance(each, ContextItem))
        if len(own) < len(parsed.input.items):
            return b""  # it refers to others, and would have to be resolved
        return identity.mac(self._gw.seals, own, parsed.body.previous_response_id or "-")

    # What others keep

    def may_have(self, key: Key, digests: frozenset[int] | None) -> bool:
        """Says whether another process may keep what a create of this key comes back to.

        `digests` are those of its context (`matching.known_digests`).
        """
        anchors = self._leases_of_key.get(key, {}).keys()
        return bool(anchors) if digests is None else not anchors.isdisjoint(map(_short, digests))

    async def recall(self, key: Key, response_id: str) -> Parent | None:
        """Returns what another process remembers of a response, to be continued."""
        owner = self._kept.get(response_id)
        if owner is None:
            return None
        asked = Recall(response_id, self._mail.inbox, self._next_number(), key)
        found = await self._answer_to(owner, asked)
        return found if isinstance(found, Recalled) and found.items else None

    async def find(self, job: Job, items: tuple[ContextItem, ...] | None) -> RemoteResponse | None:
        """Claims the response that a job comes back to; `items`: its context, if it is known."""
        key, identity = (job.tenant.id, job.tenant.key_id), _identity(job)
        own_mac = self._own_mac(identity, job.parsed)
        mac_of: dict[int, bytes] = {}  # of the beginning of the context, by its length
        by_anchor = self._leases_of_key.get(key, {})
        anchors = set(by_anchor)
        if items is not None:
            anchors &= {0, *[_short(each.digest) for each in items]}
        for lease in [each for anchor in anchors for each in by_anchor[anchor].values()]:
            tail: tuple[ContextItem, ...] | None = None
            if items is None:
                tail = () if own_mac and lease.own_mac == own_mac else None
            elif len(items) >= lease.num_items:
                num_items = lease.num_items
                if num_items not in mac_of:
                    mac_of[num_items] = identity.mac(self._gw.seals, items[:num_items])
                if mac_of[num_items] == lease.mac:
                    tail = items[num_items:]
            if tail is not None:
                return await self._claim(job, lease, tail)
        return None

    async def find_named(
        self, tenant: Tenant, response_id: str, starting_after: int
    ) -> RemoteResponse | None:
        """Claims a response by its name, of whichever process has it."""
        key = (tenant.id, tenant.key_id)
        number = self._next_number()
        claim = Claim(response_id, self._mail.inbox, number, key=key, starting_after=starting_after)
        lease = self._leases.get(response_id)
        granted = await self._answer_to(ALL if lease is None else lease.owner, claim)
        if not isinstance(granted, Granted) or granted.outcome != "joined":
            return None
        body = CreateBody(model="auto", input="", store=False)
        parsed = parse_create(body, response_id)  # what the owner has of it is not known here
        now_us = self._gw.clock_us()
        job = Job(parsed, unheard(parsed), tenant, arrived_us=now_us, refuse=lambda _: None)
        return self._follow(job, response_id, granted.owner, number)

    async def _claim(
        self, job: Job, lease: Lease, tail: tuple[ContextItem, ...]
    ) -> RemoteResponse | None:
        asides = tuple(returning_by(job.parsed, tail).asides)
        number, key = self._next_number(), (lease.tenant_id, lease.key_id)
        claim = Claim(lease.id, self._mail.inbox, number, key=key, tail=tail, asides=asides)
        granted = await self._answer_to(lease.owner, claim)
        if not isinstance(granted, Granted) or granted.outcome != "joined":
            self._forget(lease.id)
            return None
        return self._follow(job, lease.id, lease.owner, number)

    def _next_number(self) -> int:
        self._num_asked += 1
        return self._num_asked

    async def _answer_to(self, channel: str, asked: Claim | Recall) -> Granted | Recalled | None:
        """Sends a claim or a recall, and returns the owner's answer; None: there is none in time.

        There is none of an owner that is dead.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Granted | Recalled | None] = loop.create_future()
        self._asked[asked.number] = channel, answer
        self._mail.send(channel, asked)
        try:
            async with asyncio.timeout(ASK_ALL_S if channel == ALL else CLAIM_S):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._asked[asked.number]

    def _follow(self, job: Job, response_id: str, owner: str, number: int) -> RemoteResponse:
        address = (owner, self._mail.inbox, number)
        remote = RemoteResponse(job, response_id, address, self._mail.send)
        self._claimed[number] = remote
        remote.begin()
        assert remote.pump is not None
        remote.pump.add_done_callback(lambda _: self._claimed.pop(number, None))
        return remote

    def _remember(self, lease: Lease) -> None:
        self._forget(lease.id)
        key = (lease.tenant_id, lease.key_id)
        self._leases[lease.id] = lease
        self._leases_of_key.setdefault(key, {}).setdefault(lease.anchor, {})[lease.id] = lease
        self._count()
        asyncio.get_running_loop().call_later(lease.life_s, self._expire, lease)
        if len(self._leases) > MAX_LEASES:
            self._forget(next(iter(self._leases)))

    def _expire(self, lease: Lease) -> None:
        if self._leases.get(lease.id) is lease:
            self._forget(lease.id)

    def _forget(self, response_id: str) -> None:
        lease = self._leases.pop(response_id, None)
        if lease is None:
            return
        key = (lease.tenant_id, lease.key_id)
        by_anchor = self._leases_of_key[key]
        del by_anchor[lease.anchor][response_id]
        if not by_anchor[lease.anchor]:
            del by_anchor[lease.anchor]
        if not by_anchor:
            del self._leases_of_key[key]
            self._count()

    def _note_kept(self, kept: Remembers) -> None:
        for response_id in kept.ids:
            self._kept[response_id] = kept.owner
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        self._count()
        asyncio.get_running_loop().call_later(kept.life_s, self._forget_kept, kept)

    def _forget_kept(self, kept: Remembers) -> None:
        for response_id in kept.ids:
            if self._kept.get(response_id) == kept.owner:
                del self._kept[response_id]
        self._count()

    def _count(self) -> None:
        self._rejoins.num_elsewhere = len(self._leases_of_key) + len(self._kept)

    # What was handed over

    def take_back(self, key: Key, response_id: str) -> None:
        """Ends the handover of a response: its client asks for it on another connection.

        The process that has it may not know yet that the connection there is dead.
        """
        for (inbox, number), handover in tuple(self._handovers.items()):
            lost = handover.lost
            if lost.key == key and lost.job.parsed.id == response_id:
                del self._handovers[inbox, number]
                moved = taken_over(response_id).event(handover.stream_id)
                self._mail.send(inbox, Told(number, "error", moved))
                self._mail.send(inbox, Finished(number, None))
                handover.lose()

    def _note_dead(self, inbox: str) -> None:
        """Forgets a process: what it kept is gone with it, and nobody waits for its answers."""
        for lease in [each for each in self._leases.values() if each.owner == inbox]:
            self._forget(lease.id)
        for response_id in [each for each, owner in self._kept.items() if owner == inbox]:
            del self._kept[response_id]
        self._count()
        for owner, answer in self._asked.values():
            if owner == inbox and not answer.done():
                answer.set_result(None)
        for remote in self._claimed.values():
            if remote.owner == inbox:
                remote.note_dead()
        for (follower, _), handover in tuple(self._handovers.items()):
            if follower == inbox:
                handover.lose()

    # Notes

    def _take(self, note: Note) -> None:
        match note:
            case Lease(owner=owner) if owner != self._mail.inbox:
                self._remember(note)
            case Gone(id=response_id, owner=owner):
                lease = self._leases.get(response_id)
                if lease is not None and lease.owner == owner:
                    self._forget(response_id)
            case Remembers(owner=owner) if owner != self._mail.inbox:
                self._note_kept(note)
            case Recall():
                self._mail.send(note.inbox, self._remembered(note))
            case Claim():
                self._grant(note)
            case Granted(number=number) | Recalled(number=number):
                _, answer = self._asked.get(number, (None, None))
                if answer is not None and not answer.done():
                    answer.set_result(note)
            case Listens(inbox=inbox, number=number, stream_id=stream_id):
                if (handover := self._handovers.get((inbox, number))) is not None:
                    handover.start(stream_id)
            case Told(number=number) | Finished(number=number) | Beat(inbox="", number=number):
                if (remote := self._claimed.get(number)) is not None:
                    remote.take(note)
            case Left(inbox=inbox, number=number) | Beat(inbox=inbox, number=number):
                if (handover := self._handovers.get((inbox, number))) is not None:
                    handover.take(note)

    def _remembered(self, note: Recall) -> Recalled:
        found = self._rejoins.remembered(note.key, note.id)
        if found is None or sum(item.num_tokens for item in found.items) > MAX_RECALLED_TOKENS:
            return Recalled(note.number)
        return Recalled(note.number, found.items, found.backend, found.lineage)

    def _grant(self, claim: Claim) -> None:
        outcome: Outcome
        if claim.starting_after is None:
            asides = frozenset(claim.asides)
            outcome, lost = self._rejoins.claimed(claim.key, claim.id, claim.tail, asides)
        elif claim.inbox == self._mail.inbox:
            return  # to all, this one included
        else:
            after = claim.starting_after
            lost = self._rejoins.claimed_by_name(claim.key, claim.id, after)
            if lost is None:
                return  # others may have it
            outcome = "joined"
        self._mail.send(claim.inbox, Granted(claim.number, outcome, self._mail.inbox))
        if lost is None:
            return
        address = (claim.inbox, claim.number)
        send, keep_again = self._mail.send, self._rejoins.keep_again
        confirm_s = self._rejoins.grace_s(lost.job.tenant)
        handover = Handover(lost, claim, send, self._flusher, keep_again, confirm_s)
        if len(self._handovers) >= MAX_HANDOVERS:
            self._handovers.pop(next(iter(self._handovers))).lose()
        self._handovers[address] = handover
        handover.following.add_done_callback(lambda _: self._handovers.pop(address, None))


def _short(digest: int) -> int:
    """Returns so much of a digest as tells creates apart, and nobody what was asked."""
    return digest & 0xFFFF


def _identity(job: Job) -> Identity:
    tenant, parsed = job.tenant, job.parsed
    return Identity(tenant.id, tenant.key_id, turn_of(parsed), settings_of(parsed))
