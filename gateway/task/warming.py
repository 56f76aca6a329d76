"""Warm-ups (`generate: false`): what a conversation's next turn needs is made ready ahead of it.

On each backend of the route the prompt is computed and kept, or a connection opened, as far as that
backend can. A warm-up takes nothing from tasks that answer: backends with no slot to spare decline
it, as this does while tasks wait for a pool or where the tenant could not pay for the turn. It is
bounded in time, and ends early where the turn itself has come. States of each: warming, then one
of the others, for good.

An edge: it uses the event loop.
"""

import asyncio

from backends.contract import BackendError, Delta, Finish, Generation, Usage
from gateway.core.gateway import Gateway
from gateway.wire.routing import RoutedWarmUp, WarmUpState
from router.classify.task import Task
from router.decide.decision import RankedRoute
from router.pools.pools import Balance

_READY: tuple[WarmUpState, ...] = ("held", "opened", "cut")  # the next turn gains from going there


class WarmUp:
    """One backend's. Satisfies `backends.contract.Sink`."""

    def __init__(self, owner: "Warming", backend: str) -> None:
        self.backend = backend
        self.state: WarmUpState = "warming"
        self.usage = Usage()  # input: held now; cached: of that, before
        self.generation: Generation | None = None
        self._owner = owner

    @property
    def computed(self) -> Usage:
        """What it is charged for: what the backend did not have already."""
        usage = self.usage
        num_tokens = max(0, usage.num_input_tokens - usage.num_cached_tokens)
        return Usage(num_input_tokens=num_tokens, exact=usage.exact)

    def push(self, delta: Delta) -> None:
        """See `Sink.push`; a warm-up says nothing."""

    def finish(self, finish: Finish) -> None:
        """See `Sink.finish`."""
        if self.state == "warming":
            self.usage = finish.usage
            if finish.error is not None:
                self._owner.failed(self, finish.error)
            else:
                self.end("held" if finish.usage.num_input_tokens else "opened")

    def cut(self) -> None:
        """End it now, if it is still under way; what was done by now stays."""
        if self.state == "warming" and self.generation is not None:
            self.usage = self.generation.cancel()
            self.end("cut")

    def end(self, state: WarmUpState) -> None:
        """It is over."""
        self.state = state
        self._owner.over(self)


class Warming:
    """A task's warm-ups. `ended` resolves once; `close` may be called at any time."""

    def __init__(
        self, gw: Gateway, task: Task, chosen: RankedRoute, balances: tuple[Balance, ...]
    ) -> None:
        """Nothing has begun yet."""
        self._gw = gw
        self._task = task
        self._balances = balances
        self._timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.warm_ups = [WarmUp(self, name) for name in chosen.backends]

    def start(self) -> None:
        """Begin on every backend of the route; those that will not are over at once."""
        self._timer = self.ended.get_loop().call_later(self._gw.warm_up_timeout_s, self.stop)
        request = self._task.warm_up_request()
        for warm_up in self.warm_ups:
            hindrance = self._hindrance(warm_up.backend)
            if hindrance is not None:
                warm_up.end(hindrance)
                continue
            try:
                warm_up.generation = self._gw.backends[warm_up.backend].start(request, warm_up)
            except BackendError as error:
                self.failed(warm_up, error)

    def _hindrance(self, backend: str) -> WarmUpState | None:
        group = self._gw.infos[backend].group
        if self._gw.warm_up_timeout_s <= 0 or self._gw.waiting.wanting(group):
            return "declined"
        for balance in self._balances:
            is_tokens = balance.group == group and balance.unit in ("tokens", "tokens_day")
            if is_tokens and balance.remaining < self._task.request.num_prompt_tokens:
                return "limited"  # its turn would not be let in either
        return None

    def failed(self, warm_up: WarmUp, error: BackendError) -> None:
        """A backend will not, or could not."""
        if error.code == "server_is_overloaded":
            warm_up.end("declined")
        else:
            self._gw.metrics.failed(error)
            warm_up.end("failed")

    def over(self, warm_up: WarmUp) -> None:
        """One of them has ended."""
        num_computed_tokens = warm_up.computed.num_input_tokens
        counts = self._gw.metrics.counts
        counts["lanewise_warm_ups_total"][warm_up.backend, warm_up.state].inc()
        counts["lanewise_warm_up_tokens_total"][(warm_up.backend,)].inc(num_computed_tokens)
        if all(each.state != "warming" for each in self.warm_ups):
            self.stop()

    def stop(self) -> None:
        """Wait no longer."""
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        """End whatever is under way, at once and synchronously."""
        if self._timer is not None:
            self._timer.cancel()
        for warm_up in self.warm_ups:
            warm_up.cut()

    @property
    def usages(self) -> list[Usage]:
        """What is charged, in the order of the route's backends."""
        return [warm_up.computed for warm_up in self.warm_ups]

    def usage_by_backend(self) -> dict[str, Usage]:
        """`usages` by name."""
        return {warm_up.backend: warm_up.computed for warm_up in self.warm_ups}

    @property
    def holder(self) -> str | None:
        """The backend to go on with: the route's last, as after an answer, that is ready."""
        ready = (each.backend for each in reversed(self.warm_ups) if each.state in _READY)
        return next(ready, None)

    @property
    def num_cached_tokens(self) -> int:
        """How much of the context was held before."""
        return max(warm_up.usage.num_cached_tokens for warm_up in self.warm_ups)

    def view(self) -> tuple[RoutedWarmUp, ...]:
        """`routing.warm`: how far each backend is ready."""
        usages = ((each, each.usage) for each in self.warm_ups)
        return tuple(
            RoutedWarmUp(each.backend, each.state, used.num_input_tokens, used.num_cached_tokens)
            for each, used in usages
        )
