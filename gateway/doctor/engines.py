"""Asks an engine once, through the backend that a gateway would use. This is an edge."""

import asyncio
import time

import msgspec

from backends.contract import (
    BackendError,
    Delta,
    Finish,
    GenerateRequest,
    Message,
    TextFormat,
    TextPart,
)
from backends.prompt import measure, prompt_size
from backends.upstream.backend import UpstreamBackendConfig
from gateway.config.backend_kinds import BackendConfig
from gateway.doctor.findings import EngineAnswer

ASK = "Reply with the one word ready."
MAX_OUTPUT_TOKENS = 512  # reasoning counts, too
TIMEOUT_S = 60.0  # a local server may load its model first


class _Sink:
    """Keeps what a test of an engine needs to know."""

    def __init__(self) -> None:
        self.first_s: float | None = None
        self.ended: asyncio.Future[Finish] = asyncio.get_running_loop().create_future()

    def push(self, delta: Delta) -> None:
        if self.first_s is None:
            self.first_s = time.monotonic()

    def finish(self, finish: Finish) -> None:
        if not self.ended.done():
            self.ended.set_result(finish)


async def ask_engine(config: BackendConfig) -> EngineAnswer:
    """Sends one short request and returns what came of it; it is neither retried nor probed for."""
    if isinstance(config, UpstreamBackendConfig):
        options = msgspec.structs.replace(config.options, probe_path=None, max_retries=0)
        config = msgspec.structs.replace(config, options=options)
    answer = EngineAnswer(name=config.name, model=config.options.model)
    try:
        backend = config.make()
    except (OSError, ValueError) as error:
        return msgspec.structs.replace(answer, error=str(error))
    sink = _Sink()
    try:
        begun_s = time.monotonic()
        backend.start(_request(config.options.model), sink)
        finish = await asyncio.wait_for(sink.ended, TIMEOUT_S)
    except BackendError as error:
        return msgspec.structs.replace(answer, error=error.message)
    except TimeoutError:
        return msgspec.structs.replace(answer, error=f"no answer within {TIMEOUT_S:g} s")
    finally:
        await backend.close()
    return msgspec.structs.replace(
        answer,
        error=finish.error.message if finish.error is not None else None,
        first_ms=None if sink.first_s is None else (sink.first_s - begun_s) * 1e3,
        num_tokens=finish.usage.num_output_tokens,
        simulated=backend.info.simulated,
    )


def _request(model: str) -> GenerateRequest:
    item = measure(Message("user", (TextPart(ASK),)))
    num_tokens, prefix = prompt_size(None, (), TextFormat(), (item,))
    return GenerateRequest(
        id="resp_check",
        model=model,
        items=(item,),
        num_prompt_tokens=num_tokens,
        prefix=prefix,
        may_store=False,
        max_output_tokens=MAX_OUTPUT_TOKENS,
    )
