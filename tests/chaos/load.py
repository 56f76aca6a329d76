"""Supports the scenarios: turns on many sockets at a steady rate, and how each of them ended."""

import asyncio
import contextlib
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence

import websockets

from tests.chaos.fleet import CANARY, STEADY_KEY

TERMINALS = ("response.completed", "response.incomplete", "response.failed")
TURN_TIMEOUT_S = 60.0  # without a word: it hangs, and that is a violation
PROMPT = f"{CANARY} Count to "  # a number: who sends the same again comes back to what it lost


class Tally:
    """Says what clients saw; all of it in one process, so that it needs no lock."""

    def __init__(self) -> None:
        self.ended = Counter[str]()  # terminals and error codes
        self.lost = 0  # begun, and the connection closed before the terminal
        self.unanswered = 0  # sent, and the connection closed before anything came
        self.doubled = 0  # a second terminal, or an event behind it
        self.hung = 0
        self.reconnects = 0
        self.refused = Counter[str]()  # by exception or status: connections
        self.terminal_ids: set[str] = set()
        self.stored_ids: list[str] = []
        self.begin_s: list[float] = []  # from the request to the first event
        self.shed_s: list[float] = []  # the same, of refusals
        self.turn_s: list[float] = []
        self.without_retry_after = 0  # refusals of a limit that do not say when to come back
        self.ends: list[tuple[float, str]] = []  # when, on the monotonic clock, and how

    @property
    def num_good(self) -> int:
        return self.ended["response.completed"] + self.ended["response.incomplete"]

    @property
    def num_errors(self) -> int:
        return self.ended.total() - self.num_good

    def __str__(self) -> str:
        middle, slow = (quantile(self.begin_s, share) * 1e3 for share in (0.5, 0.99))
        return (
            f"{self.ended.total()} turns ended, of them {dict(self.ended)}; {self.lost} lost, "
            f"{self.unanswered} unanswered, {self.doubled} doubled, {self.hung} hung; "
            f"{self.reconnects} reconnects, refused {dict(self.refused)}; first event p50 "
            f"{middle:.1f} ms, p99 {slow:.1f} ms"
        )


def quantile(values: Sequence[float], share: float) -> float:
    """Takes it of values in any order; nan of none."""
    if len(values) < 2:
        return values[0] if values else float("nan")
    return statistics.quantiles(values, n=1_000, method="inclusive")[
        min(998, int(share * 1_000) - 1)
    ]


class Load:
    """Runs turns on sockets, each of which has one under way at most and comes back when cut."""

    def __init__(
        self,
        urls: Callable[[], Sequence[str]],
        *,
        num_sockets: int,
        turns_per_s: float,
        seed: int,
        key: str = STEADY_KEY,
        model: str = "lanewise-fast",
        num_tokens: int = 12,
        chains: bool = False,
        stores: bool = False,
        jitter_s: float = 0.5,
    ) -> None:
        self.tally = Tally()
        self._urls = urls  # asked at each connect
        self._num_sockets = num_sockets
        self._pause_s = num_sockets / turns_per_s
        self.chance = random.Random(seed)
        self._headers = {"authorization": f"Bearer {key}"}
        self._body = {
            "type": "response.create",
            "model": model,
            "max_output_tokens": num_tokens,
            "min_tokens": num_tokens,
            "ignore_eos": True,
            "store": stores or chains,
        }
        self._chains = chains
        self._stores = stores or chains
        self._jitter_s = jitter_s
        self._stopping = asyncio.Event()
        self.num_open = 0

    async def run(self, seconds: float) -> Tally:
        """Offers turns for so long; what is under way then ends."""
        asyncio.get_running_loop().call_later(seconds, self._stopping.set)
        async with asyncio.TaskGroup() as sockets:
            for _ in range(self._num_sockets):
                sockets.create_task(self._keep())
        return self.tally

    async def once(self) -> None:
        """Runs one turn on a socket of its own."""
        with contextlib.suppress(websockets.ConnectionClosed):
            async with self._connect(self._urls()[0]) as socket:
                await self._turn(socket, [""])

    def stop(self) -> None:
        """Ends it before its time."""
        self._stopping.set()

    def _connect(self, url: str) -> websockets.connect:
        return websockets.connect(
            url, additional_headers=self._headers, compression=None, max_queue=None
        )

    async def _keep(self) -> None:
        is_first, last = True, [""]
        while not self._stopping.is_set():
            if not is_first:
                self.tally.reconnects += 1
                await asyncio.sleep(self.chance.uniform(0, self._jitter_s))
            is_first = False
            url = self.chance.choice(list(self._urls()))
            try:
                async with self._connect(url) as socket:
                    self.num_open += 1
                    try:
                        await self._turns(socket, last)
                    finally:
                        self.num_open -= 1
            except websockets.InvalidStatus as error:
                self.tally.refused[str(error.response.status_code)] += 1
            except (OSError, TimeoutError, websockets.InvalidMessage) as error:
                self.tally.refused[type(error).__name__] += 1
            except websockets.ConnectionClosed as error:
                self.tally.refused[f"closed {error.rcvd.code if error.rcvd else 1006}"] += 1

    async def _turns(self, socket: websockets.ClientConnection, last: list[str]) -> None:
        while True:
            ends_s = time.monotonic() + self.chance.expovariate(1 / self._pause_s)
            while not self._stopping.is_set() and time.monotonic() < ends_s:
                await asyncio.sleep(min(0.25, max(0.0, ends_s - time.monotonic())))
                if socket.close_code is not None:
                    return
            if self._stopping.is_set():
                return
            await self._turn(socket, last)

    async def _turn(self, socket: websockets.ClientConnection, last: list[str]) -> None:
        tally, sent_s, begun = self.tally, time.monotonic(), ""
        body = {**self._body, "input": PROMPT + str(self.chance.getrandbits(48))}
        if self._chains and last[0] and self.chance.random() < 0.7:
            body["previous_response_id"] = last[0]
        try:
            await socket.send(json.dumps(body))
            while True:
                frame = await asyncio.wait_for(socket.recv(), TURN_TIMEOUT_S)
                event = json.loads(frame)
                kind = event["type"]
                now_s = time.monotonic()
                if kind == "error":
                    code = str(event["error"].get("code"))
                    tally.ended[code] += 1
                    tally.ends.append((now_s, code))
                    tally.shed_s.append(now_s - sent_s)
                    headers = event["error"].get("headers") or event.get("headers") or {}
                    if code == "rate_limit_exceeded" and "retry-after" not in headers:
                        tally.without_retry_after += 1
                    if code == "previous_response_not_found":
                        last[0] = ""
                    return
                response = event.get("response") or {}
                if response.get("id") in tally.terminal_ids or (
                    begun and response.get("id", begun) != begun
                ):
                    tally.doubled += 1
                if not begun and response:
                    begun = response["id"]
                    tally.begin_s.append(now_s - sent_s)
                if kind in TERMINALS:
                    self._note_terminal(kind, response, now_s - sent_s, last)
                    return
        except websockets.ConnectionClosed:
            tally.lost += bool(begun)
            tally.unanswered += not begun
            raise
        except TimeoutError:
            tally.hung += 1

    def _note_terminal(
        self, kind: str, response: dict[str, object], took_s: float, last: list[str]
    ) -> None:
        tally, made = self.tally, str(response["id"])
        tally.ended[kind] += 1
        tally.ends.append((time.monotonic(), kind))
        tally.turn_s.append(took_s)
        tally.terminal_ids.add(made)
        if self._stores and kind != "response.failed":
            last[0] = made
            tally.stored_ids.append(made)
