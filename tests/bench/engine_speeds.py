"""Measures what users of the two documented engines see: first token, speed, one function.

    python tests/bench/engine_speeds.py [--lines 300] [--prompt-tokens 1500] [--repeat 3]

Starts a gateway with deploy/qwen3_235b_and_llama33_70b.toml and asks each engine, through the
official OpenAI SDK, for one long function after a long prompt, streamed. Times are the client's.
Prints a table, and with --json one JSON object for comparing runs. Takes about 25 s a repeat, since
the deep engine does.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from openai import OpenAI

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from backends.tokenizer import count  # noqa: E402
from tests.bench import rows as shape  # noqa: E402
from tests.e2e.gateway_process import DEVELOPMENT_KEY, served  # noqa: E402

CONFIG = ROOT / "deploy" / "qwen3_235b_and_llama33_70b.toml"
MODELS = {"fast": "qwen3-235b-a22b", "deep": "llama-3.3-70b"}
PASTED_LINE = "worker {number} took job {number} from the queue and gave it back later\n"


class Answer(NamedTuple):
    """Is one answer as its client saw it."""

    prompt_tokens: int
    output_tokens: int
    code_lines: int
    first_token_s: float
    total_s: float

    @property
    def tokens_per_s(self) -> float:
        """Returns the output tokens after the first, over the time they took."""
        return (self.output_tokens - 1) / (self.total_s - self.first_token_s)


def answer_to(client: OpenAI, model: str, pasted: str, lines: int) -> Answer:
    """Streams one answer; the effort is low so that all of it is the function."""
    started_s = time.perf_counter()
    first_s = None
    text = []
    stream = client.responses.create(
        model=model,
        input=[
            {"role": "user", "content": pasted},
            {"role": "assistant", "content": "Read."},
            {"role": "user", "content": f"Write a {lines}-line Python function that parses it."},
        ],
        reasoning={"effort": "low"},
        store=False,
        stream=True,
    )
    for event in stream:
        if event.type == "response.output_text.delta":
            first_s = first_s or time.perf_counter() - started_s
            text.append(event.delta)
        elif event.type == "response.completed":
            usage = event.response.usage
            assert usage is not None
            assert first_s is not None
            code = "".join(text).split("```")[1]
            return Answer(
                usage.input_tokens,
                usage.output_tokens,
                code.count("\n") - 1,
                first_s,
                time.perf_counter() - started_s,
            )
    raise SystemExit(f"{model}: the stream ended without an answer")


def median(answers: list[Answer]) -> Answer:
    """Returns the answer whose total time is the middle one."""
    return sorted(answers, key=lambda answer: answer.total_s)[len(answers) // 2]


def table(fast: Answer, deep: Answer) -> str:
    """Shows both engines side by side, and the deep one's figures relative to the fast one's."""
    rows = (
        ("prompt tokens", fast.prompt_tokens, deep.prompt_tokens, ""),
        ("output tokens", fast.output_tokens, deep.output_tokens, ""),
        ("lines of code", fast.code_lines, deep.code_lines, ""),
        ("first token, s", fast.first_token_s, deep.first_token_s, "lower"),
        ("tokens/s", fast.tokens_per_s, deep.tokens_per_s, "higher"),
        ("whole answer, s", fast.total_s, deep.total_s, "lower"),
    )
    lines = [f"{'':16}  {'fast':>9}  {'deep':>9}  {'times':>6}"]
    for name, ours, theirs, better in rows:
        times = theirs / ours if better == "lower" else ours / theirs
        shown = [f"{value:9,.2f}" if better else f"{value:9,}" for value in (ours, theirs)]
        lines.append(f"{name:16}  {'  '.join(shown)}  {f'{times:6.1f}' if better else ''}".rstrip())
    return "\n".join(lines)


def measure(lines: int, prompt_tokens: int, repeat: int) -> dict[str, list[Answer]]:
    """Asks every engine `repeat` times; prompts differ, so that no prefix is cached."""
    answers: dict[str, list[Answer]] = {group: [] for group in MODELS}
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), "--config", str(CONFIG)) as gateway,
    ):
        client = OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0)
        answer_to(client, MODELS["fast"], "", 10)  # what the client does once, no answer pays for
        for number in range(repeat):
            pasted = f"Log {number}\n"
            while count(pasted) < prompt_tokens:
                pasted += PASTED_LINE.format(number=pasted.count("\n"))
            for group, model in MODELS.items():
                answers[group].append(answer_to(client, model, pasted, lines))
    return answers


def rows_of(answers: dict[str, list[Answer]]) -> list[shape.Row]:
    """Compares the fast engine with the deep one."""

    def row(name: str, unit: str, figure: Callable[[Answer], float]) -> shape.Row:
        return shape.Row(
            name=f"one long function: {name}",
            unit=unit,
            values=[figure(answer) for answer in answers["fast"]],
            baseline="the deep engine",
            baseline_values=[figure(answer) for answer in answers["deep"]],
        )

    return [
        row("first token", "s", lambda answer: answer.first_token_s),
        row("speed", "tokens/s", lambda answer: answer.tokens_per_s),
        row("whole answer", "s", lambda answer: answer.total_s),
    ]


def commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--prompt-tokens", type=int, default=1500)
    parser.add_argument("--repeat", type=int, default=3, help="answers of each; the median counts")
    parser.add_argument("--json", action="store_true")
    shape.add_argument(parser)
    options = parser.parse_args()
    answers = measure(options.lines, options.prompt_tokens, options.repeat)
    fast, deep = median(answers["fast"]), median(answers["deep"])
    if options.rows is not None:
        shape.publish(rows_of(answers), options)
        return 0
    if not options.json:
        print(table(fast, deep))
        return 0
    speeds = {group: [one.tokens_per_s for one in them] for group, them in answers.items()}
    found = {
        "fast": fast._asdict(),
        "deep": deep._asdict(),
        "tokens_per_s": {group: statistics.median(them) for group, them in speeds.items()},
        "commit": commit(),
        "machine": f"{platform.machine()} python {platform.python_version()}",
    }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
