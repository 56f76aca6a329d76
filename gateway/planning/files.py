"""Reads a plan's files: the trace, the objectives, the prices and the policies. This is an edge."""

import csv
import datetime
import gzip
import io
import random
import tomllib
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from backends.simulated.gpu import GpuBackendConfig, GpuOptions
from backends.simulated.wafer import WaferBackendConfig, WaferOptions
from gateway.backtest.fleets import Speeds, fleet_of
from gateway.backtest.log_files import LogFileError, records_in, with_rotated
from gateway.config.command_error import CommandError
from gateway.config.policy_file import named
from router.backtest.arrivals import AnswerLength, Arrival
from router.backtest.fleet import EngineMachine
from router.backtest.log_reader import read_records
from router.backtest.packed import Packed
from router.comparison.what_if import without_untestable
from router.planning.capacity import capacity_of
from router.planning.terms import MAX_SERVERS, PLAN_TENANT, Material, PlanSlo, ServerKind
from router.policy.policy import DEFAULT_POLICY, Policy, PolicyError, parse_policy
from router.record.recording import decode_line
from wafer_engine.calibration.prefix_blocks import prefix_of

MAX_TASKS = 1_000_000
TRACE_SEED = 20_261_123  # of the classes of a trace's tasks, which no CSV says
# An idle server draws this share of its rated power. Both are assumed: an H100 idles at 70-100 of
# 700 W; a wafer's cores, clocked and cooled, at half.
IDLE_SHARES = {"gpu": 0.15, "wafer": 0.5}
# When a request came: in seconds, in milliseconds as Mooncake has it, as a date as Azure has it.
_SECONDS, _MILLISECONDS, _DATE = ("arrival_s",), ("timestamp",), "TIMESTAMP"
_PROMPT = ("input_tokens", "ContextTokens", "input_length")
_OUTPUT = ("output_tokens", "GeneratedTokens", "output_length")


class PlanError(CommandError):
    """Says why a plan cannot be made, and what to do."""


class _Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    kind: str
    per_hour: float
    least: int = 0
    most: int = 4
    idle_power_w: float | None = None
    busy_share: float = 1.0
    options: dict[str, Any] = {}


class _Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    servers: tuple[_Server, ...]
    energy_per_kwh: float = 0.0


def read_material(
    trace: Path, slo: Path, prices: Path, policies: Sequence[Path], seed: int
) -> Material:
    """Reads all that a plan is made of. Raises `PlanError`."""
    arrivals, tiers = read_trace(trace, seed)
    listed = _read_toml(prices, _Prices)
    objectives = _read_toml(slo, PlanSlo)
    kinds = tuple(_kind(prices, server, arrivals) for server in listed.servers)
    if not any(kind.most for kind in kinds):
        raise PlanError(f"{prices}: no [[servers]] with most above 0: at least one is needed")
    if not 0 <= listed.energy_per_kwh < 1e9:
        raise PlanError(f"{prices}: energy_per_kwh: expected a price from 0")
    if len({kind.name for kind in kinds}) < len(kinds):
        raise PlanError(f"{prices}: two [[servers]] of one name")
    given = {name: _policy(path) for name, path in named(policies).items()}
    able, untestable = _able(given or {DEFAULT_POLICY.version: DEFAULT_POLICY}, arrivals)
    return Material(
        arrivals=arrivals,
        kinds=kinds,
        policies=able,
        untestable=untestable,
        slo=objectives,
        energy_per_kwh=listed.energy_per_kwh,
        tenant_tiers=tiers,
    )


def _read_toml(path: Path, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), kind)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise PlanError(f"{path}: {error}") from error


def _policy(path: Path) -> Policy:
    try:
        return parse_policy(path.read_bytes(), str(path))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from error
    except PolicyError as error:
        raise PlanError(str(error)) from error


def _able(
    policies: Mapping[str, Policy], arrivals: Sequence[Arrival]
) -> tuple[dict[str, Policy], tuple[str, ...]]:
    """Leaves out the rules that a trace cannot test, as a back-test does, and names them."""
    has_text = all(one.text is not None for one in arrivals)
    metadata_names = frozenset(name for one in arrivals for name in one.hints.metadata)
    able: dict[str, Policy] = {}
    told: list[str] = []
    for name, policy in policies.items():
        able[name], untestable = without_untestable(
            policy, has_text=has_text, metadata_names=metadata_names
        )
        told += [f"{name}: rule {each.rule!r} is left out: {each.why}" for each in untestable]
    return able, tuple(told)


def _kind(path: Path, server: _Server, arrivals: Sequence[Arrival]) -> ServerKind:
    where = f"{path}: server {server.name!r}"
    if not 0 <= server.least <= server.most <= MAX_SERVERS:
        raise PlanError(f"{where}: least and most: expected 0 to {MAX_SERVERS}, least first")
    if not 0 <= server.per_hour < 1e9 or not 0 < server.busy_share <= 1:
        raise PlanError(f"{where}: expected per_hour from 0, and busy_share above 0, at most 1")
    machine = _machine(where, server)
    idle_w = server.idle_power_w
    if idle_w is None:
        idle_w = IDLE_SHARES[server.kind] * machine.power_w
    if not 0 <= idle_w <= machine.power_w:
        raise PlanError(f"{where}: idle_power_w: expected 0 to the rated {machine.power_w:g} W")
    return ServerKind(
        name=server.name,
        machine=machine,
        per_hour=server.per_hour,
        least=server.least,
        most=server.most,
        idle_power_w=idle_w,
        busy_share=server.busy_share,
        capacity=capacity_of(machine, arrivals),
    )


def _machine(where: str, server: _Server) -> EngineMachine:
    try:
        if server.kind == "gpu":
            gpu = GpuBackendConfig(server.name, msgspec.convert(server.options, GpuOptions))
            return fleet_of([gpu], Speeds()).machines[0]
        if server.kind == "wafer":
            wafer = WaferBackendConfig(server.name, msgspec.convert(server.options, WaferOptions))
            return fleet_of([wafer], Speeds()).machines[0]
    except (ValueError, msgspec.ValidationError) as error:
        raise PlanError(f"{where}: {error}") from error
    raise PlanError(f"{where}: kind {server.kind!r}: expected gpu or wafer")


def read_trace(path: Path, seed: int = 0) -> tuple[Sequence[Arrival], dict[str, str]]:
    """Reads a decision log, or a CSV of requests; also its tenants' tiers. Raises `PlanError`.

    A CSV says nothing of its tasks' classes: those are drawn, the same for the same seed.
    """
    if not path.exists():
        raise PlanError(f"{path}: no such file")
    try:
        if path.name.removesuffix(".gz").endswith(".csv"):
            return _of_csv(path, seed), {PLAN_TENANT: "standard"}
        records = records_in(with_rotated(path), decode_line)
        # What was refused as a mistake of its client, no fleet could answer.
        logged = read_records(each for each in records if each.outcome != "invalid")
    except LogFileError as error:  # which names the file, perhaps a rotated one
        raise PlanError(str(error)) from error
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise PlanError(f"{path}: {error}") from error
    if not logged.arrivals:
        raise PlanError(f"{path}: no task with a size in this log")
    arrivals = Packed(Arrival, (_out_of_its_queue(one) for one in logged.arrivals))
    return arrivals, {one.tenant: one.tier for one in logged.arrivals}


def _out_of_its_queue(one: Arrival) -> Arrival:
    """Lets a task arrive when it began: no fleet shortens the queue of its stream in the log."""
    if not one.queued_us:
        return one
    return msgspec.structs.replace(
        one,
        at_us=one.at_us + one.queued_us,
        think_us=one.think_us + one.queued_us,
        queued_us=0,
    )


def _of_csv(path: Path, seed: int) -> list[Arrival]:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    reader = csv.DictReader(io.StringIO(text))
    chance = random.Random(TRACE_SEED + seed)
    arrivals: list[Arrival] = []
    for number, row in enumerate(reader, start=2):
        if len(arrivals) >= MAX_TASKS:
            raise ValueError(f"more than {MAX_TASKS:,} requests: give a part")
        at_s = _arrived_s(row, number)
        prompt, output = (_cell(row, names, number) for names in (_PROMPT, _OUTPUT))
        length = AnswerLength(max(1, round(output)))
        prompt_tokens = max(1, round(prompt))
        try:
            prefix = prefix_of(row.get("hash_ids") or "", prompt_tokens)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        arrivals.append(
            Arrival(
                id=f"task-{number}",
                at_us=round(at_s * 1e6),
                tenant=PLAN_TENANT,
                prompt_tokens=prompt_tokens,
                expected_output_tokens=length.output_tokens,
                p_deep=chance.random(),
                prefix=prefix,
                lengths=(("fast", length), ("deep", length)),
            )
        )
    if not arrivals:
        raise ValueError("no rows")
    return sorted(arrivals, key=lambda one: (one.at_us, one.id))


def _arrived_s(row: Mapping[str, str | None], number: int) -> float:
    if row.get(_MILLISECONDS[0]):
        return _cell(row, _MILLISECONDS, number) / 1e3
    dated = row.get(_DATE)
    if not dated:
        return _cell(row, _SECONDS, number)
    try:
        at = datetime.datetime.fromisoformat(dated)
    except ValueError:
        raise ValueError(f"line {number}: {_DATE} is {dated!r}: expected a date") from None
    return (at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp()


def _cell(row: Mapping[str, str | None], names: Sequence[str], number: int) -> float:
    for name in names:
        cell = row.get(name)
        if cell:
            try:
                value = float(cell)
            except ValueError:
                value = -1.0
            if not 0 <= value < 1e12:
                raise ValueError(f"line {number}: {name} is {cell!r}: expected a number from 0")
            return value
    raise ValueError(f"line {number}: no {names[0]}: expected the columns of a request log")
