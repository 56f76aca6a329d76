"""Serves an engine that costs next to nothing: the link's protocol with prepared text.

A measurement with it shows the gateway alone. Every generation gets `--rate` tokens a second from
the same text, begun at a position that its prompt names ("from 17"), until it has as many
tokens as it asked for. All generations share one frame per `--interval-ms`. With `--instant` every
answer comes whole and at once: a call of the first tool where there is one.

    python tests/bench/firehose.py --port 9100 --rate 1000
"""

import argparse
import asyncio
import sys
import time
from itertools import pairwise
from pathlib import Path

import uvloop
from websockets.asyncio.server import ServerConnection, serve

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from backends.contract import (  # noqa: E402
    BackendInfo,
    BackendStats,
    DeltaKind,
    FinishReason,
    FunctionTool,
    GenerateRequest,
    Message,
    Usage,
)
from backends.link.frames import (  # noqa: E402
    MAX_FRAME_BYTES,
    VERSION,
    Cancel,
    End,
    Hello,
    Start,
    Step,
    encode,
    gateway_frames,
)
from backends.prompt import parts_text  # noqa: E402
from backends.tokenizer import count, token_ends  # noqa: E402

MODEL = "firehose"
PARAGRAPH = """\
Each worker takes a job from the queue, marks it as taken, and puts it back when its lease is over.

```python
def take(queue: Queue, worker: str, now_us: int) -> Job | None:
    job = queue.first(lambda entry: entry.lease_us < now_us)
    return None if job is None else queue.lease(job, worker, now_us + LEASE_US)
```

"A lease that nobody renews" is how a crash shows; 2 of 1,000 jobs see one\u2026
"""
ARGUMENTS = '{"path":"src/queue/lease.py","first_line":40,"last_line":86,"why":"the lease"}'
STRIDE_TOKENS = 7  # between the positions where two neighbours begin


class Text:
    """Is the endless text, as tokens."""

    def __init__(self) -> None:
        ends = [0, *token_ends(PARAGRAPH)]
        self._tokens = [PARAGRAPH[a:b] for a, b in pairwise(ends)]
        self.num_tokens = len(self._tokens)  # then it begins again
        self.chars_per_token = len(PARAGRAPH) / len(self._tokens)

    def piece(self, start: int, num_tokens: int) -> str:
        """Returns so many tokens from there on."""
        size = len(self._tokens)
        at = start % size
        if at + num_tokens <= size:
            return "".join(self._tokens[at : at + num_tokens])
        rounds, rest = divmod(num_tokens - (size - at), size)
        return "".join(self._tokens[at:]) + PARAGRAPH * rounds + "".join(self._tokens[:rest])


def start_of(prompt: str) -> int:
    """Returns the token at which the answer to "... from 17" begins."""
    return STRIDE_TOKENS * int(prompt.rsplit(" ", 1)[1])


class Generation:
    """Is one generation under way."""

    def __init__(self, request: GenerateRequest, now_us: int) -> None:
        (entry,) = request.items
        assert isinstance(entry.item, Message)
        self.start = start_of(parts_text(entry.item.content))
        self.target = request.max_output_tokens
        self.num_prompt_tokens = request.num_prompt_tokens
        self.num_sent = 0
        self.began_us = now_us


class Firehose:
    """Holds all generations of one gateway."""

    def __init__(self, rate: float, interval_s: float, *, instant: bool) -> None:
        self._instant = instant
        self._rate = rate
        self._interval_s = interval_s
        self._text = Text()
        self._generations: dict[int, Generation] = {}

    async def serve(self, connection: ServerConnection) -> None:
        """Talk to a gateway until it leaves."""
        info = BackendInfo(
            name="firehose",
            model=MODEL,
            group="fast",
            window_tokens=1 << 20,
            max_output_tokens=1 << 20,
        )
        idle = BackendStats(
            info=info,
            healthy=True,
            num_running=0,
            num_waiting=0,
            max_num_seqs=1 << 20,
            kv_used_tokens=0,
            kv_capacity_tokens=0,
        )
        await connection.send(encode(Hello(VERSION, now_us(), info, idle)))
        pump = asyncio.create_task(self._pump(connection))
        try:
            async for message in connection:
                assert isinstance(message, bytes)
                frame = gateway_frames.decode(message)
                if isinstance(frame, Start) and self._instant:
                    await connection.send(encode(instant_answer(frame, now_us())))
                elif isinstance(frame, Start):
                    self._generations[frame.key] = Generation(frame.request, now_us())
                elif isinstance(frame, Cancel):
                    self._generations.pop(frame.key, None)
        finally:
            pump.cancel()

    async def _pump(self, connection: ServerConnection) -> None:
        due_s = time.monotonic()
        while True:
            due_s = max(due_s + self._interval_s, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())
            step = self._step(now_us())
            if step.keys:
                await connection.send(encode(step))

    def _step(self, at_us: int) -> Step:
        step = Step([], [], [], [], [], [], {}, [])
        for key, generation in self._generations.items():
            due = int((at_us - generation.began_us) * self._rate / 1e6)
            num_tokens = min(due, generation.target) - generation.num_sent
            if num_tokens <= 0:
                continue
            step.keys.append(key)
            begin = generation.start + generation.num_sent
            step.texts.append(self._text.piece(begin, num_tokens))
            step.num_tokens.append(num_tokens)
            generation.num_sent += num_tokens
            if generation.num_sent == generation.target:
                usage = Usage(
                    num_input_tokens=generation.num_prompt_tokens,
                    num_output_tokens=generation.target,
                )
                step.ends.append(End(key, FinishReason.STOP, usage, at_us))
        rows = len(step.keys)
        step.indexes.extend([0] * rows)
        step.kinds.extend([int(DeltaKind.TEXT)] * rows)
        step.at_us.extend([at_us] * rows)
        for end in step.ends:
            del self._generations[end.key]
        return step


def instant_answer(start: Start, at_us: int) -> Step:
    """Returns the whole answer in one frame."""
    request, key = start.request, [start.key]
    num_tokens = count(ARGUMENTS)
    usage = Usage(num_input_tokens=request.num_prompt_tokens, num_output_tokens=num_tokens)
    end = End(start.key, FinishReason.STOP, usage, at_us)
    tool = next((tool for tool in request.tools if isinstance(tool, FunctionTool)), None)
    kind = DeltaKind.TEXT if tool is None else DeltaKind.FUNCTION_CALL
    calls = {} if tool is None else {0: (f"call_{start.key}", tool.name)}
    return Step(key, [0], [int(kind)], [ARGUMENTS], [num_tokens], [at_us], calls, [end])


def now_us() -> int:
    """Returns the engine's clock."""
    return time.monotonic_ns() // 1000


async def run(port: int, rate: float, interval_s: float, *, instant: bool) -> None:
    """Serve for ever."""

    async def one(connection: ServerConnection) -> None:
        await Firehose(rate, interval_s, instant=instant).serve(connection)

    async with serve(one, "127.0.0.1", port, compression=None, max_size=MAX_FRAME_BYTES):
        await asyncio.get_running_loop().create_future()


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, default=1000.0, help="tokens/s of each stream")
    parser.add_argument("--interval-ms", type=float, default=20.0, help="between two frames")
    parser.add_argument("--instant", action="store_true", help="whole answers at once")
    asked = parser.parse_args()
    uvloop.run(run(asked.port, asked.rate, asked.interval_ms / 1e3, instant=asked.instant))


if __name__ == "__main__":
    main()
