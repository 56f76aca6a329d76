"""What an engine puts out, as rows."""

from wafer_engine.batching.engine import Engine, EngineOutput
from wafer_engine.batching.sequence import Sequence


def rows(output: EngineOutput) -> list[tuple[int, int, int, bool]]:
    """(sequence, tokens, at, finished) per row."""
    columns = (output.sequence_ids, output.num_tokens, output.at_us, output.finished)
    return list(zip(*columns, strict=True))


def run_out(engine: Engine) -> list[tuple[int, int, int, bool]]:
    """Every row until the engine is idle, fetched as each falls due."""
    found = []
    while (next_us := engine.next_event_us()) is not None:
        found += rows(engine.advance(next_us, progress=False))
    return found


def sequence(number: int, prompt: int, output: int, **fields: object) -> Sequence:
    return Sequence(id=number, num_prompt_tokens=prompt, num_output_tokens=output, **fields)  # type: ignore[arg-type]
