"""Runs warm-ups (`generate: false`), which prepare the backends for a conversation's next turn.

Each backend of the route computes and caches the prompt, or opens a connection, as far as it can.
Tasks that answer have priority: busy backends decline a warm-up, and so does the gateway while
tasks wait for a pool or if the tenant's tokens would not suffice for the turn. A warm-up has a
timeout, and ends early when the turn comes. Its state is warming, then one of the others.
This is an edge.
"""

import asyncio

from backends.contract import BackendError, Delta, Finish, Generation, Usage
from gateway.core.gateway import Gateway
from gateway.wire.routing import RoutedWarmUp, WarmUpState
from router.classify.task import Task
from router.decide.decision import RankedRoute
from router.pools.pools import TOKEN_UNITS, Balance

_READY: tuple[WarmUpState, ...] = ("held", "opened", "cut")  # the next turn benefits


class WarmUp:
    """Runs one backend's warm-up. Satisfies `backends.contract.Sink`."""

    def __init__(self, owner: "Warming", backend: str) -> None:
        self.backend = backend
        self.state: WarmUpState = "warming"
        self.usage = Usage()  # input: cached now; cached: before
        self.generation: Generation | None = None
        self._owner = owner

    @property
    def computed(self) -> Usage:
        """Returns what is charged: tokens that were not cached already."""
        usage = self.usage
        num_tokens = max(0, usage.num_input_tokens - usage.num_cached_tokens)
        return Usage(num_input_tokens=num_tokens, exact=usage.exact, bounded=usage.bounded)

    def push(self, delta: Delta) -> None:
        """Does nothing: a warm-up generates no tokens."""

    def finish(self, finish: Finish) -> None:
        """Notes the end (`Sink.finish`)."""
        if self.state == "warming":
            self.usage = finish.usage
            if finish.error is not None:
                self._owner.failed(self, finish.error)
            else:
                self.end("held" if finish.usage.num_input_tokens else "opened")

    def cut(self) -> None:
        """Cancels the warm-up, if it is under way; what was cached stays."""
        if self.state == "warming" and self.generation is not None:
            self.usage = self.generation.cancel()
            self.end("cut")

    def end(self, state: WarmUpState) -> None:
        """Notes the final state."""
        self.state = state
        self._owner.over(self)


class Warming:
    """Runs a task's warm-ups. `ended` resolves once; `close` may be called at any time."""

    def __init__(
        self, gw: Gateway, task: Task, chosen: RankedRoute, balances: tuple[Balance, ...]
    ) -> None:
        """Makes a warm-up per backend, without starting any."""
        self._gw = gw
        self._task = task
        self._balances = balances
        self._timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.warm_ups = [WarmUp(self, name) for name in chosen.backends]

    def start(self) -> None:
        """Starts on every backend of the route; refusals end at once."""
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
            is_tokens = balance.group == group and balance.unit in TOKEN_UNITS
            if is_tokens and balance.remaining < self._task.request.num_prompt_tokens:
                return "limited"  # its turn would be refused, too
        return None

    def failed(self, warm_up: WarmUp, error: BackendError) -> None:
        """Notes that a backend declined or failed."""
        if error.code == "server_is_overloaded":
            warm_up.end("declined")
        else:
            self._gw.metrics.failed(error)
            warm_up.end("failed")

    def over(self, warm_up: WarmUp) -> None:
        """Counts a warm-up that ended, and stops after the last."""
        num_computed_tokens = warm_up.computed.num_input_tokens
        counts = self._gw.metrics.counts
        counts["lanewise_warm_ups_total"][warm_up.backend, warm_up.state].inc()
        counts["lanewise_warm_up_tokens_total"][(warm_up.backend,)].inc(num_computed_tokens)
        if all(each.state != "warming" for each in self.warm_ups):
            self.stop()

    def stop(self) -> None:
        """Stops waiting for warm-ups."""
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        """Cancels all warm-ups synchronously."""
        if self._timer is not None:
            self._timer.cancel()
        for warm_up in self.warm_ups:
            warm_up.cut()

    @property
    def usages(self) -> list[Usage]:
        """Returns the charged usage, in the order of the route's backends."""
        return [warm_up.computed for warm_up in self.warm_ups]

    def usage_by_backend(self) -> dict[str, Usage]:
        """Returns the charged usage by backend."""
        return {warm_up.backend: warm_up.computed for warm_up in self.warm_ups}

    @property
    def holder(self) -> str | None:
        """Returns the last ready backend of the route, for the next turn."""
        ready = (each.backend for each in reversed(self.warm_ups) if each.state in _READY)
        return next(ready, None)

    @property
    def num_cached_tokens(self) -> int:
        """Returns how many tokens of the context were cached before."""
        return max(warm_up.usage.num_cached_tokens for warm_up in self.warm_ups)

    def view(self) -> tuple[RoutedWarmUp, ...]:
        """Builds `routing.warm`: how far each backend is ready."""
        usages = ((each, each.usage) for each in self.warm_ups)
        return tuple(
            RoutedWarmUp(each.backend, each.state, used.num_input_tokens, used.num_cached_tokens)
            for each, used in usages
        )
