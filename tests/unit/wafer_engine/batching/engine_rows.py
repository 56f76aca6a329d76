"""Returns what an engine puts out, as rows."""

from wafer_engine.batching.engine import Engine, OutputRow
from wafer_engine.batching.sequence import Sequence


def run_out(engine: Engine) -> list[OutputRow]:
    """Returns every row until the engine is idle, fetched as each falls due."""
    found = []
    while (next_us := engine.next_event_us()) is not None:
        found += engine.advance(next_us, progress=False)
    return found


def sequence(number: int, prompt: int, output: int, **fields: object) -> Sequence:
    return Sequence(id=number, num_prompt_tokens=prompt, num_output_tokens=output, **fields)  # type: ignore[arg-type]
