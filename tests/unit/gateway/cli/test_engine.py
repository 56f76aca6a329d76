"""Tests `lanewise engine wafer` and `gpu`: options of an engine's cost as flags that reach it."""

import argparse

import pytest

from backends.gpu_engine.cost import DEFAULT_ENGINE, DEFAULT_PRECISION, DEFAULT_TP
from backends.simulated.gpu import GpuBackendConfig, GpuOptions
from backends.simulated.wafer import WaferBackendConfig, WaferOptions
from gateway.cli import engine as engine_command
from gateway.config.config import Config
from gateway.config.sections import ConfigError, ServerConfig, TenantConfig
from gateway.process.server import limits_end_with_process
from wafer_engine.batching.speculation import NO_SPECULATION, Speculation


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    engine_command.COMMAND.add_to(made.add_subparsers(), "engine", "")
    return made


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Returns what would have been served."""
    configs: list[Config] = []
    monkeypatch.setattr(engine_command, "serve", lambda config, _: configs.append(config) or 0)
    return configs


def options_of(line: str, served: list[Config]) -> WaferOptions | GpuOptions:
    arguments = parser().parse_args(["engine", *line.split()])
    assert arguments.run(arguments) == 0
    (backend,) = served.pop().backends
    assert isinstance(backend, WaferBackendConfig | GpuBackendConfig)
    return backend.options


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("--wafer WSE-2", "wafer", "WSE-2"),
        ("--num-wafers 15", "num_wafers", 15),
        ("--bits 8", "weight_bits", 8.0),
        ("--kv-bits 8", "kv_bits", 8.0),
        ("--clock-ghz 0.85", "clock_hz", 0.85e9),
        ("--link-latency-us 2.5", "link_latency_us", 2.5),
        ("--max-num-seqs 5", "max_num_seqs", 5),
        ("--attention-window 4096", "attention_window_tokens", 4096),
        ("--draft-tokens 3 --acceptance 0.6", "speculation", Speculation(3, 0.6)),
        ("--draft-tokens 0", "speculation", NO_SPECULATION),
        ("", "speculation", None),
    ],
)
def test_wafer_flags(flags: str, field: str, value: object, served: list[Config]) -> None:
    assert getattr(options_of(f"wafer {flags}", served), field) == value


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("--gpu A100", "gpu", "A100"),
        ("--engine trtllm_0_17", "engine", "trtllm_0_17"),
        ("--tp 4", "tp", 4),
        ("--pp 2", "pp", 2),
        ("--dp 2", "dp", 2),
        ("--expert-parallel", "expert_parallel", True),
        ("", "expert_parallel", False),
        ("--precision bf16", "precision", "bf16"),
        ("--kv-precision fp8", "kv_precision", "fp8"),
        ("--max-num-seqs 5", "max_num_seqs", 5),
        ("--attention-window 4096", "attention_window_tokens", 4096),
        (
            "--draft-tokens 3 --acceptance 0.6 --draft-cost 0.1",
            "speculation",
            Speculation(3, 0.6, 0.1),
        ),
        ("", "speculation", NO_SPECULATION),
    ],
)
def test_gpu_flags(flags: str, field: str, value: object, served: list[Config]) -> None:
    assert getattr(options_of(f"gpu {flags}", served), field) == value


@pytest.mark.parametrize("flags", ["--acceptance 0.5", "--draft-tokens 4", "--draft-cost 0.1"])
def test_half_a_draft_is_refused(flags: str, served: list[Config]) -> None:
    arguments = parser().parse_args(["engine", "wafer", *flags.split()])
    with pytest.raises(ConfigError, match="--draft-tokens"):
        arguments.run(arguments)
    assert not served


@pytest.mark.parametrize("acceptance", ["1.5", "-0.1", "nan"])
def test_an_acceptance_is_a_probability(acceptance: str, served: list[Config]) -> None:
    flags = ["--draft-tokens", "4", f"--acceptance={acceptance}"]
    arguments = parser().parse_args(["engine", "gpu", *flags])
    with pytest.raises(ConfigError, match="expected a probability"):
        arguments.run(arguments)


@pytest.mark.parametrize("kind", ["wafer", "gpu"])
def test_an_engine_alone_has_no_limits_to_lose(kind: str, served: list[Config]) -> None:
    arguments = parser().parse_args(["engine", kind])
    assert arguments.run(arguments) == 0
    assert not limits_end_with_process(served.pop())


@pytest.mark.parametrize("serves_link", [False, True])
def test_configured_tenants_have(serves_link: bool) -> None:
    tenants = tuple(
        TenantConfig(id=name, keys=(f"sk-{name}-0123",), limits={}) for name in ("ada", "bo")
    )
    server = ServerConfig(serves_link=serves_link)
    assert limits_end_with_process(Config(server=server, tenants=tenants))
    assert not limits_end_with_process(Config(server=server))


def test_help_states_the_real_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["engine", "gpu", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert f"tensor parallel (default {DEFAULT_TP})" in text
    assert f"fp8... (default {DEFAULT_PRECISION})" in text
    assert f"constants (default: {DEFAULT_ENGINE})" in text


def test_the_key_need_not_stand_in_the_arguments(
    served: list[Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANEWISE_ENGINE_KEY", "sk-of-the-engine")
    arguments = parser().parse_args(["engine", "wafer"])
    arguments.run(arguments)
    assert served[0].tenants[0].keys == ("sk-of-the-engine",)
    monkeypatch.setenv("LANEWISE_ENGINE_KEY", "")
    with pytest.raises(ConfigError, match="LANEWISE_ENGINE_KEY: expected at least 8 characters"):
        arguments.run(arguments)


@pytest.mark.parametrize("key", ["", "sk-1234"])
def test_a_key_that_opens_nothing_is_refused(key: str, served: list[Config]) -> None:
    arguments = parser().parse_args(["engine", "wafer", "--key", key])
    with pytest.raises(ConfigError, match="--key, LANEWISE_ENGINE_KEY: expected at least 8"):
        arguments.run(arguments)
    assert not served


def test_a_published_key_is_refused_where_others_reach_the_engine(served: list[Config]) -> None:
    arguments = ["engine", "wafer", "--key", "sk-engine-change-me"]
    loopback = parser().parse_args(arguments)
    loopback.run(loopback)
    assert len(served) == 1
    public = parser().parse_args([*arguments, "--listen", "0.0.0.0:9100"])
    with pytest.raises(ConfigError, match=r"^--key, LANEWISE_ENGINE_KEY: the key is published"):
        public.run(public)
    assert len(served) == 1
