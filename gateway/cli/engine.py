"""`lanewise engine`: one simulated engine served alone, or asked what it predicts.

Served alone (`wafer`, `gpu`) it speaks the same Responses and chat-completions API as the gateway,
since it is the gateway with one backend, and offers that backend to other gateways over the link.
`predict` and `replay` run the same cost models and the same engine without serving anything.

An edge: it uses the operating system.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from backends.contract import BackendGroup
from backends.gpu_engine.calibration.request_logs import LOG_ENGINE
from backends.gpu_engine.cost import (
    DEFAULT_ENGINE,
    DEFAULT_GPU,
    DEFAULT_PRECISION,
    DEFAULT_TP,
    GpuCost,
)
from backends.gpu_engine.cost import DEFAULT_MODEL as DEFAULT_GPU_MODEL
from backends.simulated.gpu import GpuBackendConfig, GpuOptions
from backends.simulated.predict import predict_file, replay_file
from backends.simulated.wafer import WaferBackendConfig, WaferOptions
from gateway.config.backend_kinds import BackendConfig
from gateway.config.config import Config, check_config, with_environ
from gateway.config.development import DEVELOPMENT_KEY
from gateway.config.sections import ConfigError, RedisConfig, ServerConfig, TenantConfig
from gateway.process.server import serve
from router.classify.task import GroupLimits
from wafer_engine.batching.speculation import Speculation
from wafer_engine.hardware.cost import DEFAULT_MODEL as DEFAULT_WAFER_MODEL
from wafer_engine.hardware.cost import LINK_LATENCY_US

# An engine alone limits nobody: its own queue does. Bounded, since a pool has to be.
_UNLIMITED = GroupLimits(
    requests_per_min=1_000_000, tokens_per_min=1_000_000_000, max_concurrent=100_000
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `engine` with its kinds."""
    text = "One simulated engine: served alone, or asked what it predicts."
    example = "example: lanewise engine wafer --listen 127.0.0.1:9100"
    engine = commands.add_parser("engine", help=text, description=text, epilog=example)
    kinds = engine.add_subparsers(required=True, metavar="KIND")
    wafer = _add_kind(kinds, "wafer", "A wafer-scale engine.", DEFAULT_WAFER_MODEL)
    wafer.add_argument("--wafer", default=None, metavar="NAME", help="WSE-2 or WSE-3 (default)")
    wafer.add_argument("--num-wafers", type=int, default=None, help="default: as few as hold it")
    wafer.add_argument("--bits", type=float, help="of a weight: 16 (default), 8 or 4")
    wafer.add_argument("--kv-bits", type=float, help="of a cached key or value (default 16)")
    wafer.add_argument("--clock-ghz", type=float, help="default: the wafer's")
    wafer.add_argument(
        "--link-latency-us", type=float, help=f"between wafers (default {LINK_LATENCY_US:g})"
    )
    wafer.set_defaults(run=_run_wafer)
    gpu = _add_kind(kinds, "gpu", "A GPU server.", DEFAULT_GPU_MODEL)
    gpu.add_argument("--gpu", default=DEFAULT_GPU, metavar="NAME", help="default: %(default)s")
    gpu.add_argument("--engine", help=f"whose constants (default: {DEFAULT_ENGINE})")
    gpu.add_argument("--tp", type=int, help=f"tensor parallel (default {DEFAULT_TP})")
    gpu.add_argument("--pp", type=int, help="pipeline stages (default 1)")
    gpu.add_argument("--dp", type=int, help="attention replicas (default 1)")
    gpu.add_argument(
        "--expert-parallel", action="store_true", default=None, help="spread experts over all GPUs"
    )
    gpu.add_argument("--precision", help=f"weights: bf16, fp8... (default {DEFAULT_PRECISION})")
    gpu.add_argument("--kv-precision", help="KV cache (default bf16)")
    gpu.set_defaults(run=_run_gpu)
    _add_predict(kinds)
    _add_replay(kinds)


def _add_kind(
    kinds: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    text: str,
    default_shape: str,
) -> argparse.ArgumentParser:
    parser = kinds.add_parser(
        name,
        help=text,
        description=text,
        epilog=f"example: lanewise engine {name} --model {default_shape} --listen 127.0.0.1:9100",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model", default=default_shape, help="a public model shape (default: %(default)s)"
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:9100", metavar="HOST:PORT", help="default: %(default)s"
    )
    parser.add_argument("--key", default=DEVELOPMENT_KEY, help="API key (default: development key)")
    parser.add_argument("--redis", metavar="URL", help="default: an embedded Redis")
    parser.add_argument("--script", choices=("answer", "echo", "replay"), default="answer")
    parser.add_argument("--replay", metavar="FILE", help="the recording of --script replay")
    parser.add_argument("--max-num-seqs", type=int, help="sequences that run at a time")
    parser.add_argument("--draft-tokens", type=int, help="speculation: proposed per pass; 0: none")
    parser.add_argument("--acceptance", type=float, help="chance that a proposed token is right")
    parser.add_argument("--draft-cost", type=float, help="of one proposed token, in passes")
    parser.add_argument(
        "--attention-window", type=int, metavar="TOKENS", help="sparse attention to so many tokens"
    )
    return parser


def _run_wafer(arguments: argparse.Namespace) -> int:
    given = {
        "wafer": arguments.wafer,
        "num_wafers": arguments.num_wafers,
        "weight_bits": arguments.bits,
        "kv_bits": arguments.kv_bits,
        "link_latency_us": arguments.link_latency_us,
        "clock_hz": None if arguments.clock_ghz is None else arguments.clock_ghz * 1e9,
    }
    options = WaferOptions(**_common(arguments), **_without_none(given))
    return _run(arguments, "fast", WaferBackendConfig("wafer", options))


def _run_gpu(arguments: argparse.Namespace) -> int:
    names = ("gpu", "engine", "tp", "pp", "dp", "expert_parallel", "precision", "kv_precision")
    given = {name: getattr(arguments, name) for name in names}
    options = GpuOptions(**_common(arguments), **_without_none(given))
    return _run(arguments, "deep", GpuBackendConfig("gpu", options))


def _common(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {
        "max_num_seqs": arguments.max_num_seqs,
        "speculation": _speculation(arguments),
        "attention_window_tokens": arguments.attention_window,
    }
    return {
        "model": arguments.model,
        "shape": arguments.model,
        "script": arguments.script,
        "replay_path": arguments.replay,
        **_without_none(given),
    }


def _speculation(arguments: argparse.Namespace) -> Speculation | None:
    """The draft that was asked for, if one was."""
    if arguments.draft_tokens is None:
        if arguments.acceptance is not None or arguments.draft_cost is not None:
            raise ConfigError("--acceptance and --draft-cost need --draft-tokens")
        return None
    if arguments.draft_tokens and arguments.acceptance is None:
        raise ConfigError("--draft-tokens needs --acceptance")
    try:
        return Speculation(
            arguments.draft_tokens, arguments.acceptance or 0.0, arguments.draft_cost or 0.0
        )
    except ValueError as error:
        raise ConfigError(f"speculation: {error}") from error


def _without_none(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _run(arguments: argparse.Namespace, group: BackendGroup, backend: BackendConfig) -> int:
    host, _, port = arguments.listen.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--listen {arguments.listen!r}: expected HOST:PORT")
    tenant = TenantConfig(
        id="engine", keys=(arguments.key,), tier="engine", limits={group: _UNLIMITED}
    )
    config = Config(
        server=ServerConfig(host=host.strip("[]"), port=int(port), serves_link=True),
        redis=with_environ(RedisConfig(arguments.redis), os.environ),
        tenants=(tenant,),
        backends=(backend,),
    )
    check_config(config)
    return serve(config)


def _add_predict(kinds: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = kinds.add_parser(
        "predict",
        help="Predict published measurements.",
        description="Write a CSV of measurements again, with what the engines predict.",
        epilog="example: lanewise engine predict --rows wse.csv --out predicted.csv",
    )
    parser.add_argument("--rows", required=True, metavar="FILE", help="CSV of measurements")
    parser.add_argument("--out", metavar="FILE", help="default: standard output")
    parser.set_defaults(run=_predict)


def _predict(arguments: argparse.Namespace) -> int:
    try:
        _write(arguments.out, predict_file(Path(arguments.rows)))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--rows {arguments.rows}: {error}") from error
    return 0


def _add_replay(kinds: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = kinds.add_parser(
        "replay",
        help="Replay a server's request log.",
        description="Write a per-request log again, with the times our engine would have given.",
        epilog="example: lanewise engine replay --requests log.csv.gz --gpu RTX-4090 "
        "--model Llama-3.1-8B --max-num-seqs 256",
    )
    parser.add_argument("--requests", required=True, metavar="FILE", help="CSV, plain or gzipped")
    parser.add_argument("--gpu", required=True, metavar="NAME")
    parser.add_argument("--model", required=True, metavar="NAME", help="a public model shape")
    parser.add_argument("--engine", default=LOG_ENGINE, help="constants (default: %(default)s)")
    parser.add_argument("--tp", type=int, default=1, help="tensor parallel (default 1)")
    parser.add_argument("--precision", default="bf16", help="weights (default: %(default)s)")
    parser.add_argument("--max-num-seqs", type=int, default=128)
    parser.add_argument("--max-num-batched-tokens", type=int, default=2048)
    parser.add_argument("--kv-capacity-tokens", type=int, help="default: what the memory holds")
    parser.add_argument("--out", metavar="FILE", help="default: standard output")
    parser.set_defaults(run=_replay)


def _replay(arguments: argparse.Namespace) -> int:
    try:
        cost = GpuCost(
            arguments.gpu,
            arguments.model,
            tp=arguments.tp,
            precision=arguments.precision,
            engine=arguments.engine,
            max_num_seqs=arguments.max_num_seqs,
            max_num_batched_tokens=arguments.max_num_batched_tokens,
            kv_capacity_tokens=arguments.kv_capacity_tokens,
            overhead_us=0,
        )
        text, summary = replay_file(Path(arguments.requests), cost)
        _write(arguments.out, text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"engine replay: {error}") from error
    print(summary, file=sys.stderr)
    return 0


def _write(path: str | None, text: str) -> None:
    if path is None:
        sys.stdout.write(text)
    else:
        Path(path).write_text(text)
