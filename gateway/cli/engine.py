"""`lanewise engine` serves one simulated engine, or prints what it predicts.

`wafer` and `gpu` run a gateway with one backend, which they also offer to other gateways over the
link. `predict`, `replay` and `fit` run the same cost models and engine without serving anything.
This is an edge.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from backends.contract import BackendGroup
from backends.gpu_engine.calibration.fitted import fit_logs, fit_report, write_fitted
from backends.gpu_engine.calibration.request_logs import LOG_ENGINE
from backends.gpu_engine.constants import GpuConstants
from backends.gpu_engine.cost import (
    DEFAULT_ENGINE,
    DEFAULT_GPU,
    DEFAULT_PRECISION,
    DEFAULT_TP,
    GpuCost,
)
from backends.gpu_engine.cost import DEFAULT_MODEL as DEFAULT_GPU_MODEL
from backends.simulated.backend import SimulatedOptions
from backends.simulated.gpu import GpuBackendConfig, GpuOptions
from backends.simulated.predict import predict_file, replay_file
from backends.simulated.wafer import WaferBackendConfig, WaferOptions
from gateway.cli.command import Argument, Command, argument
from gateway.config.backend_kinds import BackendConfig
from gateway.config.config import Config, check_config, with_environ
from gateway.config.development import DEVELOPMENT_KEY
from gateway.config.sections import (
    MIN_KEY_CHARS,
    ConfigError,
    RedisConfig,
    ServerConfig,
    TenantConfig,
    is_loopback,
)
from gateway.config.weak_secrets import weakness
from gateway.process.server import serve
from router.classify.task import GroupLimits
from wafer_engine.batching.speculation import Speculation, asked_speculation
from wafer_engine.hardware.cost import DEFAULT_MODEL as DEFAULT_WAFER_MODEL
from wafer_engine.hardware.cost import LINK_LATENCY_US

# Only the engine's own queue shall limit, but a pool must have bounds.
_UNLIMITED = GroupLimits(
    requests_per_min=1_000_000, tokens_per_min=1_000_000_000, max_concurrent=100_000
)


_KEY_VARIABLE = "LANEWISE_ENGINE_KEY"

COMMAND = Command("lanewise engine wafer --listen 127.0.0.1:9100", metavar="KIND")


def _serving(default_shape: str) -> tuple[Argument, ...]:
    """Returns the arguments of both kinds; `_given` passes them on by their names."""
    return (
        argument(
            "--model",
            default=default_shape,
            help="a public model shape, or a config.json (default: %(default)s)",
        ),
        argument(
            "--listen", default="127.0.0.1:9100", metavar="HOST:PORT", help="default: %(default)s"
        ),
        argument(
            "--key",
            help=f"API key (default: ${_KEY_VARIABLE}, which `ps` does not show, else the "
            "development key)",
        ),
        argument("--redis", metavar="URL", help="default: an embedded Redis"),
        argument("--script", choices=("answer", "echo", "replay"), default="answer"),
        argument(
            "--replay", dest="replay_path", metavar="FILE", help="the recording of --script replay"
        ),
        argument("--max-num-seqs", type=int, help="sequences that run at a time"),
        argument("--draft-tokens", type=int, help="speculation: proposed per pass; 0: none"),
        argument("--acceptance", type=float, help="chance that a proposed token is right"),
        argument("--draft-cost", type=float, help="of one proposed token, in passes"),
        argument(
            "--attention-window",
            dest="attention_window_tokens",
            type=int,
            metavar="TOKENS",
            help="sparse attention to so many tokens",
        ),
    )


@COMMAND.command(
    "wafer",
    "A wafer-scale engine.",
    f"lanewise engine wafer --model {DEFAULT_WAFER_MODEL} --listen 127.0.0.1:9100",
    *_serving(DEFAULT_WAFER_MODEL),
    argument("--wafer", metavar="NAME", help="WSE-2 or WSE-3 (default)"),
    argument("--num-wafers", type=int, help="default: as few as hold it"),
    argument(
        "--bits",
        dest="weight_bits",
        metavar="BITS",
        type=float,
        help="of a weight: 16 (default), 8 or 4",
    ),
    argument("--kv-bits", type=float, help="of a cached key or value (default 16)"),
    argument("--clock-ghz", type=float, help="default: the wafer's"),
    argument("--link-latency-us", type=float, help=f"between wafers (default {LINK_LATENCY_US:g})"),
)
def _wafer(arguments: argparse.Namespace) -> int:
    options = WaferOptions(**_given(arguments, WaferOptions))
    if arguments.clock_ghz is not None:
        options = msgspec.structs.replace(options, clock_hz=arguments.clock_ghz * 1e9)
    return _serve(arguments, "fast", WaferBackendConfig("wafer", options))


@COMMAND.command(
    "gpu",
    "A GPU server.",
    f"lanewise engine gpu --model {DEFAULT_GPU_MODEL} --listen 127.0.0.1:9100",
    *_serving(DEFAULT_GPU_MODEL),
    argument(
        "--gpu", default=DEFAULT_GPU, metavar="NAME", help="or a FILE.toml (default: %(default)s)"
    ),
    argument("--engine", help=f"whose constants (default: {DEFAULT_ENGINE})"),
    argument("--tp", type=int, help=f"tensor parallel (default {DEFAULT_TP})"),
    argument("--pp", type=int, help="pipeline stages (default 1)"),
    argument("--dp", type=int, help="attention replicas (default 1)"),
    argument(
        "--expert-parallel", action="store_true", default=None, help="spread experts over all GPUs"
    ),
    argument("--precision", help=f"weights: bf16, fp8... (default {DEFAULT_PRECISION})"),
    argument("--kv-precision", help="KV cache (default bf16)"),
)
def _gpu(arguments: argparse.Namespace) -> int:
    return _serve(
        arguments, "deep", GpuBackendConfig("gpu", GpuOptions(**_given(arguments, GpuOptions)))
    )


def _given(arguments: argparse.Namespace, options: type[SimulatedOptions]) -> dict[str, Any]:
    """Returns the arguments that are fields of `options`; `--model` is the shape, too."""
    found = vars(arguments) | {"shape": arguments.model, "speculation": _speculation(arguments)}
    names = options.__struct_fields__
    return {name: found[name] for name in names if found.get(name) is not None}


def _speculation(arguments: argparse.Namespace) -> Speculation | None:
    try:
        return asked_speculation(arguments.draft_tokens, arguments.acceptance, arguments.draft_cost)
    except ValueError as error:
        raise ConfigError(f"speculation: {error}") from error


def _serve(arguments: argparse.Namespace, group: BackendGroup, backend: BackendConfig) -> int:
    host, _, port = arguments.listen.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--listen {arguments.listen!r}: expected HOST:PORT")
    key = arguments.key
    if key is None:
        key = os.environ.get(_KEY_VARIABLE, DEVELOPMENT_KEY)
    if len(key) < MIN_KEY_CHARS:  # an empty one opens nothing to anybody
        raise ConfigError(f"--key, {_KEY_VARIABLE}: expected at least {MIN_KEY_CHARS} characters")
    fault = weakness(key)
    if fault is not None and not is_loopback(host.strip("[]")):
        raise ConfigError(
            f"--key, {_KEY_VARIABLE}: the key {fault}, and others reach {arguments.listen}: make "
            "one with `openssl rand -hex 32`, and name it in the gateways' `key`, too"
        )
    tenant = TenantConfig(id="engine", keys=(key,), tier="engine", limits={group: _UNLIMITED})
    config = Config(
        server=ServerConfig(host=host.strip("[]"), port=int(port), serves_link=True),
        redis=with_environ(RedisConfig(arguments.redis), os.environ),
        tenants=(tenant,),
        backends=(backend,),
    )
    check_config(config)
    return serve(config, lambda: config)


@COMMAND.command(
    "predict",
    "Predict published measurements.",
    "lanewise engine predict --rows wse.csv --out predicted.csv",
    argument("--rows", required=True, metavar="FILE", help="CSV of measurements"),
    argument("--out", metavar="FILE", help="default: standard output"),
    description="Write a CSV of measurements again, with what the engines predict.",
)
def _predict(arguments: argparse.Namespace) -> int:
    try:
        _write(arguments.out, predict_file(Path(arguments.rows)))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--rows {arguments.rows}: {error}") from error
    return 0


# Which server a log is of: `_cost_of` makes its cost model.
_SERVER = (
    argument(
        "--gpu", required=True, metavar="NAME", help="a card, or a FILE.toml that describes one"
    ),
    argument(
        "--model", required=True, metavar="NAME", help="a public model shape, or a config.json"
    ),
    argument(
        "--engine",
        default=LOG_ENGINE,
        metavar="NAME",
        help="constants, or a FILE.json of engine fit (default: %(default)s)",
    ),
    argument("--tp", type=int, default=1, help="tensor parallel (default 1)"),
    argument("--pp", type=int, default=1, help="pipeline stages (default 1)"),
    argument("--dp", type=int, default=1, help="attention replicas (default 1)"),
    argument("--expert-parallel", action="store_true", help="experts spread over all GPUs"),
    argument("--precision", default="bf16", help="weights (default: %(default)s)"),
    argument("--kv-precision", help="KV cache (default bf16)"),
    argument("--max-num-seqs", type=int, default=128, help="default: %(default)s"),
    argument("--max-num-batched-tokens", type=int, default=2048, help="default: %(default)s"),
    argument("--kv-capacity-tokens", type=int, help="default: what the memory holds"),
)


@COMMAND.command(
    "replay",
    "Replay a server's request log.",
    "lanewise engine replay --requests log.csv.gz --gpu RTX-4090 --model\n"
    "Llama-3.1-8B --max-num-seqs 256",
    argument("--requests", required=True, metavar="FILE", help="CSV, plain or gzipped"),
    *_SERVER,
    argument("--out", metavar="FILE", help="default: standard output"),
    description="Write a per-request log again, with the times our engine would have given.",
)
def _replay(arguments: argparse.Namespace) -> int:
    try:
        text, summary = replay_file(Path(arguments.requests), _cost_of(arguments))
        _write(arguments.out, text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"engine replay: {error}") from error
    print(summary, file=sys.stderr)
    return 0


def _cost_of(arguments: argparse.Namespace, constants: GpuConstants | None = None) -> GpuCost:
    return GpuCost(
        arguments.gpu,
        arguments.model,
        tp=arguments.tp,
        pp=arguments.pp,
        dp=arguments.dp,
        expert_parallel=arguments.expert_parallel,
        precision=arguments.precision,
        kv_precision=arguments.kv_precision,
        engine=arguments.engine,
        constants=constants,
        max_num_seqs=arguments.max_num_seqs,
        max_num_batched_tokens=arguments.max_num_batched_tokens,
        kv_capacity_tokens=arguments.kv_capacity_tokens,
        overhead_us=0,
    )


@COMMAND.command(
    "fit",
    "Fit an engine's constants to a log of your own.",
    "lanewise engine fit --log requests.csv --gpu H100 --model Llama-3.1-8B\n--out mine.json",
    argument(
        "--log",
        dest="logs",
        required=True,
        nargs="+",
        metavar="FILE",
        help="a decision log, vLLM's benchmark or requests, or snapshots of its /metrics",
    ),
    *_SERVER,
    argument("--backend", metavar="NAME", help="of a decision log with several backends"),
    argument("--first", type=int, metavar="N", help="fit to the first N requests; others are load"),
    argument("--out", metavar="FILE.json", help="for --engine here, in replay and configurations"),
    description=(
        "Fit three constants to what a server really did: the shares of the card's arithmetic and\n"
        "memory bandwidth that it reaches, and its time per sequence and step. A fourth is taken\n"
        "in only if it foretells left-out parts of the log better."
    ),
)
def _fit(arguments: argparse.Namespace) -> int:
    try:
        base = _cost_of(arguments)
        paths = [Path(name) for name in arguments.logs]
        fitted = fit_logs(
            paths, base, lambda constants: _cost_of(arguments, constants),
            backend=arguments.backend, first=arguments.first,
        )  # fmt: skip
        if arguments.out is not None:
            write_fitted(Path(arguments.out), base, fitted)
    except (OSError, ValueError) as error:
        raise ConfigError(f"engine fit: {error}") from error
    print(fit_report(fitted, base))
    return 0


def _write(path: str | None, text: str) -> None:
    if path is None:
        sys.stdout.write(text)
    else:
        Path(path).write_text(text)
