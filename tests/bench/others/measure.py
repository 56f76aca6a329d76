"""Measures Lanewise, and its engine alone, by others' load generators: aiperf and guidellm.

    make bench-others                          # both; ARGS="--only aiperf" for one
    make bench-others ARGS="--json FILE"       # and writes what was found

Each tool asks for answers of one length (`ignore_eos`, `min_tokens`), first from the engine as a
bare server, then from the gateway, on loopback. They agree if no request fails, each answer has
that length, the gateway's time per token is within 5 % of the engine's, and its time to the first
token within 5 % and 5 ms. On a machine with other work the figures are shown and not judged.
docs/benchmarks.md has the method.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "sdk/python")]

from tests.clients.environments import environment  # noqa: E402
from tests.e2e.gateway_process import (  # noqa: E402
    CONFIG,
    DEVELOPMENT_KEY,
    redis_server,
    served,
)
from tests.ports import free_port  # noqa: E402

HERE = Path(__file__).parent
MODEL = "lanewise-fast"
TOOLS = ("aiperf", "guidellm")
NUM_REQUESTS, NUM_STREAMS = 40, 2
INPUT_BYTES, OUTPUT_TOKENS = 2_000, 400  # the tokenizer on disk has a token for each byte
MAX_RATIO, MAX_TTFT_MS = 0.05, 5.0
MAX_LOAD_PER_CORE = 0.5  # before a run; with more, its times are others' as well
RUN_TIMEOUT_S = 600.0  # bounds a hang: guidellm's imports alone take a minute on a busy machine
SNAPSHOT = "0" * 40  # a revision's name in Hugging Face's cache


class Figures(msgspec.Struct, frozen=True):
    """Says what a tool found out about a server."""

    num_done: int
    num_failed: int
    output_tokens: tuple[float, float]  # the shortest and the longest answer
    ttft_ms: float  # median
    itl_ms: float  # median, between tokens


def byte_tokenizer(home: Path) -> Path:
    """Writes a byte-level tokenizer where Hugging Face's cache would have `lanewise/bytes`."""
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|end|>"]
    tokenizer = Tokenizer(models.BPE({symbol: i for i, symbol in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    cached = home / "hub" / "models--lanewise--bytes"
    folder = cached / "snapshots" / SNAPSHOT
    folder.mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(SNAPSHOT)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def aiperf(bin_folder: Path, url: str, tokenizer: Path, folder: Path) -> Figures:
    fixed = ("--extra-inputs", "ignore_eos:true", "--extra-inputs", f"min_tokens:{OUTPUT_TOKENS}")
    run(
        *(bin_folder / "aiperf", "profile", "--model", MODEL, "--url", url),
        *("--api-key", DEVELOPMENT_KEY, "--endpoint-type", "chat", "--streaming", *fixed),
        *("--tokenizer", "lanewise/bytes", "--use-server-token-count"),
        *("--synthetic-input-tokens-mean", INPUT_BYTES, "--synthetic-input-tokens-stddev", 0),
        *("--output-tokens-mean", OUTPUT_TOKENS, "--output-tokens-stddev", 0),
        *("--concurrency", NUM_STREAMS, "--request-count", NUM_REQUESTS),
        *("--warmup-request-count", NUM_STREAMS, "--random-seed", 1, "--ui", "none"),
        *("--no-server-metrics", "--no-gpu-telemetry", "--artifact-dir", folder),
        home=tokenizer.parents[3],
    )
    found = json.loads((folder / "profile_export_aiperf.json").read_text())
    lengths = found["output_sequence_length"]
    failed = found.get("error_request_count", {"avg": 0})["avg"]
    mismatched = found["osl_mismatch_count"]["avg"]  # its own check of the length
    return Figures(
        num_done=int(found["request_count"]["avg"]),
        num_failed=int(failed + mismatched),
        output_tokens=(lengths["min"], lengths["max"]),
        ttft_ms=found["time_to_first_token"]["p50"],
        itl_ms=found["inter_token_latency"]["p50"],
    )


def guidellm(bin_folder: Path, url: str, tokenizer: Path, folder: Path) -> Figures:
    path = folder / "guidellm.json"
    server = f"kind=openai_http,target={url},model={MODEL},api_key={DEVELOPMENT_KEY}"
    lengths = f"prompt_tokens={INPUT_BYTES},output_tokens={OUTPUT_TOKENS}"
    run(
        *(bin_folder / "guidellm", "run", "--backend", server),
        *("--profile", f"kind=concurrent,streams={NUM_STREAMS}"),
        *("--constraint", f"kind=max_requests,count={NUM_REQUESTS}"),
        *("--tokenizer", f"kind=hf_auto,model={tokenizer}"),
        *("--data", f"kind=synthetic_text,{lengths}"),  # it sends ignore_eos by itself
        *("--output", f"kind=json,path={path}", "--disable-console"),
        home=tokenizer.parents[3],
    )
    metrics = json.loads(path.read_text())["benchmarks"][0]["metrics"]
    totals, lengths = metrics["request_totals"], metrics["output_token_count"]["successful"]
    return Figures(
        num_done=totals["successful"],
        num_failed=totals["errored"] + totals["incomplete"],
        output_tokens=(lengths["min"], lengths["max"]),
        ttft_ms=metrics["time_to_first_token_ms"]["successful"]["median"],
        itl_ms=metrics["inter_token_latency_ms"]["successful"]["median"],
    )


MEASURES = {"aiperf": aiperf, "guidellm": guidellm}


def run(*command: object, home: Path) -> None:
    """Runs a tool offline, with our tokenizer's cache; shows what it said if it fails."""
    environ = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    told = subprocess.run(
        [*map(str, command)],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    if told.returncode != 0:
        sys.exit(told.stdout[-3000:] + told.stderr[-3000:])


@contextmanager
def engine_alone() -> Iterator[str]:
    """Gives the bare engine's address."""
    port = free_port()
    command = [sys.executable, str(HERE / "engine_server.py"), "--port", str(port)]
    with subprocess.Popen(command) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(f"{url}/v1/models")
            yield url
        finally:
            server.terminate()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 60.0
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextmanager
def gateway(folder: Path) -> Iterator[str]:
    """Gives the gateway's address, with the same engine behind it."""
    with redis_server(folder) as redis_url:
        config = folder / "lanewise.toml"
        config.write_text(CONFIG)
        with served(folder, "--config", str(config), "--redis", redis_url) as process:
            yield process.url


def wrongs(alone: Figures, behind: Figures, *, is_quiet: bool) -> list[str]:
    """Returns what does not agree; times only count where nothing else ran."""
    found = []
    for name, figures in (("engine", alone), ("gateway", behind)):
        if figures.num_failed or figures.num_done != NUM_REQUESTS:
            found.append(f"{name}: {figures.num_done} done, {figures.num_failed} failed")
        if figures.output_tokens != (OUTPUT_TOKENS, OUTPUT_TOKENS):
            found.append(f"{name}: answers of {figures.output_tokens} tokens")
    if is_quiet and abs(behind.itl_ms / alone.itl_ms - 1) > MAX_RATIO:
        found.append(f"{behind.itl_ms:.3f} ms a token, the engine alone {alone.itl_ms:.3f}")
    if is_quiet and behind.ttft_ms > alone.ttft_ms * (1 + MAX_RATIO) + MAX_TTFT_MS:
        found.append(f"first token in {behind.ttft_ms:.1f} ms, alone in {alone.ttft_ms:.1f}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=TOOLS, action="append")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    report, failed = {}, False
    for tool in arguments.only or TOOLS:
        bin_folder = environment(f"bench-{tool}", HERE / tool / "requirements.lock").parent
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        is_quiet = load <= MAX_LOAD_PER_CORE
        with tempfile.TemporaryDirectory(prefix="lw-") as name:
            folder = Path(name)
            tokenizer = byte_tokenizer(folder / "hf")
            with engine_alone() as url:
                alone = MEASURES[tool](bin_folder, url, tokenizer, folder)
            with gateway(folder) as url:
                behind = MEASURES[tool](bin_folder, url, tokenizer, folder)
        found = wrongs(alone, behind, is_quiet=is_quiet)
        failed = failed or bool(found)
        print(f"{tool:10} {'':8} done  tokens        TTFT ms  tokens/s")
        for server, each in (("engine", alone), ("gateway", behind)):
            speeds = f"{each.ttft_ms:8.1f} {1_000 / each.itl_ms:9.0f}"
            print(f"{'':10} {server:8} {each.num_done:4}  {each.output_tokens!s:14}{speeds}")
        times = "" if is_quiet else f"; times not judged: load {load:.1f} per core"
        print(f"{'':10} {'; '.join(found) or 'agrees'}{times}", flush=True)
        report[tool] = {"engine": alone, "gateway": behind, "load": load, "wrong": found}
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
