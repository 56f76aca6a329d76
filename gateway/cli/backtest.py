"""`lanewise backtest` says what policies would have come to, on a decision log. This is an edge."""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gateway.backtest.inquiry import Inquiry, InquiryError, answer, seconds_of
from gateway.backtest.log_files import LogFileError, last_end_s, with_rotated
from gateway.cli.admin_client import ADMIN_ARGUMENTS, ask_admin
from gateway.cli.command import Command, argument
from gateway.cli.output import show
from gateway.config.command_error import CommandError
from gateway.config.config import Config, load_config, read_config
from gateway.config.policy_file import load_policy, named
from gateway.config.sections import ConfigError
from router.comparison.comparison import BacktestReport
from router.comparison.html import as_html
from router.comparison.report import as_csv, as_text
from router.comparison.statistics import Slo
from router.policy.policy import DEFAULT_POLICY, Policy, PolicyError, parse_policy

PROGRESS_S = 0.2  # between two states of the bar
_BAR = 30  # characters


def _backtest(arguments: argparse.Namespace) -> int:
    if arguments.what == "check":
        return _check(arguments)
    if not arguments.log:
        return _ask_gateway(arguments)
    try:
        report = answer(_inquiry(arguments), None if arguments.json else _Bar())
    except (InquiryError, LogFileError) as error:
        raise CommandError(str(error)) from error
    return _out(arguments, report)


def _out(arguments: argparse.Namespace, report: BacktestReport) -> int:
    text = as_text(report)
    if arguments.out is not None:
        text += f"\n{_write(arguments.out, report)}"
    show(arguments, msgspec.to_builtins(report), text)
    return 1 if any(tested.worsens_slo for tested in report.policies) else 0


def _write(out: Path, report: BacktestReport) -> str:
    """Writes the report beside itself in three formats."""
    contents: dict[str, bytes] = {
        ".html": as_html(report).encode(),
        ".json": msgspec.json.format(msgspec.json.encode(report), indent=2),
        ".csv": as_csv(report).encode(),
    }
    # A name may have dots of its own, as a date or a version has.
    name = out.stem if out.suffix in contents else out.name
    paths = {suffix: out.with_name(name + suffix) for suffix in contents}
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for suffix, content in contents.items():
            paths[suffix].write_bytes(content)
    except OSError as error:
        raise CommandError(f"--out {error.filename}: {error.strerror}") from error
    return f"Written: {', '.join(map(str, paths.values()))}"


def _inquiry(arguments: argparse.Namespace) -> Inquiry:
    config = _config(arguments)
    configured = DEFAULT_POLICY if config is None else load_policy(config)
    bases = {DEFAULT_POLICY.version: DEFAULT_POLICY, configured.version: configured}
    digests = {name: each.digest for name, each in bases.items() if each.digest is not None}
    base = None
    if arguments.base is not None:
        base = str(arguments.base)
        bases[base] = _policy(arguments.base, "--base")
    for log in arguments.log:
        if not with_rotated(log):
            raise CommandError(f"--log {log}: no such file")
    # A rotated file that is named beside its log counts once.
    paths = list(dict.fromkeys(path for log in arguments.log for path in with_rotated(log)))
    since_s = None
    if arguments.last is not None:
        end_s = last_end_s(paths)
        if not end_s:
            raise CommandError(f"--log {arguments.log[0]}: no line of a decision log in it")
        since_s = end_s - arguments.last
    more: dict[str, Any] = {}
    if config is not None:
        more = {
            "tenants": {each.id: each.tenant(config.tiers) for each in config.tenants},
            "backends": config.backends,
            "weights": config.cost_weights,
            "prices": config.prices,
            "ceilings": config.own_ceilings,
            "waiting": config.waiting,
            "adaptation": config.adaptation,
        }
    return Inquiry(
        paths=tuple(paths),
        since_s=since_s,
        bases=bases,
        digests=digests,
        base=base,
        policies={name: _policy(path) for name, path in named(arguments.policy).items()},
        slo=_slo(arguments),
        scale=arguments.scale,
        slow=dict(arguments.slow),
        without=tuple(arguments.without),
        seed=arguments.seed,
        **more,
    )


def _config(arguments: argparse.Namespace) -> Config | None:
    if arguments.config is None:
        return None
    return load_config(read_config(arguments.config), os.environ, name=arguments.config)


def _slo(arguments: argparse.Namespace) -> Slo:
    given = {
        "ttft_ms": arguments.slo_ttft,
        "tpot_ms": arguments.slo_tpot,
        "latency_ms": arguments.slo_latency,
    }
    try:
        return Slo(**{name: ms for name, ms in given.items() if ms is not None})
    except ValueError as error:
        raise CommandError(f"the SLO's {error}") from error


def _policy(path: Path, option: str = "--policy") -> Policy:
    try:
        return parse_policy(_content(path, option), str(path))
    except PolicyError as error:
        raise ConfigError(str(error)) from error


def _content(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{option} {error.filename}: {error.strerror}") from error


def _ask_gateway(arguments: argparse.Namespace) -> int:
    """Back-tests what a running gateway has recorded, from there."""
    for option in ("base", "config"):
        if getattr(arguments, option) is not None:
            raise CommandError(
                f"--{option} goes with --log: a running gateway knows its own policies and engines"
            )
    last_s = 900.0 if arguments.last is None else arguments.last
    documents = {name: _text(path) for name, path in named(arguments.policy).items()}
    body = {
        "last_s": last_s,
        "policies": documents,
        "scale": arguments.scale,
        "slow": dict(arguments.slow),
        "without": arguments.without,
        "slo": msgspec.to_builtins(_slo(arguments)),
        "seed": arguments.seed,
    }
    found = ask_admin(arguments, "POST", "backtest", body=body)
    return _out(arguments, msgspec.convert(found, BacktestReport))


def _text(path: Path) -> str:
    try:
        return _content(path, "--policy").decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"--policy {path}: not UTF-8: {error.reason}") from error


def _check(arguments: argparse.Namespace) -> int:
    """Compares what came of the policy in force with what was predicted when it was applied."""
    if arguments.log or arguments.policy:
        raise CommandError(
            "check asks a running gateway about the policy in force: it takes no --log or --policy"
        )
    found = ask_admin(arguments, "GET", "backtest", "check")
    return show(arguments, found, "\n".join(found["text"]), 0 if found["within"] else 1)


class _Bar:
    """Draws how far a simulation is, on a terminal."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def __call__(self, name: str, ended: int, all_of_them: int) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s or not sys.stderr.isatty():
            return
        self._next_s = now_s + PROGRESS_S
        done = "#" * (_BAR * ended // max(1, all_of_them))
        print(f"\r{name[:30]:30} [{done:{_BAR}}] {ended:,}", end="", file=sys.stderr, flush=True)


def _checked(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def checked(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _speed(text: str) -> tuple[str, float]:
    name, equals, speed = text.rpartition("=")
    try:
        if equals:
            return name, float(speed)
    except ValueError:
        pass  # it is told as what has no speed at all
    raise ValueError(f"{text!r}: expected BACKEND=SPEED, like gpu=0.5 for half its speed")


COMMAND = Command(
    "lanewise backtest --log decisions.jsonl --policy new.toml --out report\n"
    "docs/backtest.md says what each figure means, and what a log cannot tell.",
    (
        argument("what", nargs="?", choices=("check",), help="check: what came of the prediction"),
        argument(
            "--log",
            metavar="FILE",
            type=Path,
            action="append",
            default=[],
            help="a decision log, with its rotated files (default: what a running gateway has)",
        ),
        argument(
            "--policy",
            metavar="FILE",
            type=Path,
            action="append",
            default=[],
            help="a policy to test; may be given several times",
        ),
        argument(
            "--base",
            metavar="FILE",
            type=Path,
            help="the policy that made the log (default: by its version)",
        ),
        argument("--config", metavar="FILE", help="the gateway's configuration (TOML)"),
        argument(
            "--last",
            metavar="DURATION",
            type=_checked(seconds_of),
            help="only the last part, like 15m (of a running gateway: 15m)",
        ),
        argument("--scale", metavar="FACTOR", type=float, default=1.0, help="times the traffic"),
        argument(
            "--slow",
            metavar="BACKEND=SPEED",
            type=_checked(_speed),
            action="append",
            default=[],
            help="a backend at a share of its speed",
        ),
        argument(
            "--without",
            metavar="BACKEND",
            action="append",
            default=[],
            help="as if a backend were not there",
        ),
        argument("--slo-ttft", metavar="MS", type=float, help="the SLO's bound (default: 2000)"),
        argument("--slo-tpot", metavar="MS", type=float, help="(default: none)"),
        argument("--slo-latency", metavar="MS", type=float, help="(default: none)"),
        argument("--out", metavar="NAME", type=Path, help="write NAME.html, .json and .csv"),
        argument("--seed", type=int, default=0, help="of what is drawn (default: 0)"),
        *ADMIN_ARGUMENTS,
    ),
    run=_backtest,
    note="""\
exit status: 0 no policy worsens the SLO, 1 one does (check: off beyond the interval), 2 not made.
""",
)
