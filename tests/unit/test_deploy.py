"""The files under deploy/ agree with the product."""

import re
import tomllib
from pathlib import Path

import msgspec
import yaml

from backends.link.backend import LinkBackendConfig, LinkOptions
from backends.simulated import gpu, wafer
from backends.simulated.gpu import GpuBackendConfig
from backends.simulated.wafer import WaferBackendConfig
from gateway.config.config import Config, load_config

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def test_the_example_configuration_loads_and_states_the_defaults() -> None:
    config = load_config((DEPLOY / "lanewise.toml").read_bytes(), {})
    defaults = Config()
    assert config.server == defaults.server
    assert config.store == defaults.store
    assert [backend.name for backend in config.backends] == [
        backend.name for backend in defaults.backends
    ]
    assert [tenant.id for tenant in config.tenants] == ["studio", "nightly"]


def test_compose_mounts_files_that_exist() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == {"gateway", "redis", "prometheus", "grafana"}
    for service in services.values():
        for volume in service.get("volumes", ()):
            source, _, _ = volume.partition(":")
            assert (DEPLOY / source).resolve().is_file(), source
    scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == ["gateway:8080"]


def test_the_documented_pair_of_engines_is_as_fast_as_documented() -> None:
    config = load_config((DEPLOY / "qwen3_235b_and_llama33_70b.toml").read_bytes(), {})
    fast, deep = config.backends
    assert isinstance(fast, WaferBackendConfig)
    assert isinstance(deep, GpuBackendConfig)
    fast_cost, deep_cost = wafer.cost_of(fast.options), gpu.cost_of(deep.options)
    assert fast_cost.limits.kv_capacity_tokens >= fast.options.window_tokens
    for context_tokens in (256, 1024, 4096):
        fast_per_s = fast_cost.tokens_per_s(context_tokens)
        deep_per_s = deep_cost.tokens_per_s(context_tokens)
        assert fast_per_s > 1_000
        assert 65 < deep_per_s < 70
        assert 15 < fast_per_s / deep_per_s < 17
    # `make run` serves the same pair.
    assert wafer.cost_of(wafer.WaferOptions()).num_wafers == fast_cost.num_wafers
    assert gpu.cost_of(gpu.GpuOptions()).tokens_per_s(1024) == deep_cost.tokens_per_s(1024)


def test_the_linked_engine_is_configured_as_its_page_says() -> None:
    linked = load_config((DEPLOY / "linked_engine.toml").read_bytes(), {}).backends[0]
    assert isinstance(linked, LinkBackendConfig)
    page = (DEPLOY.parent / "docs" / "engines.md").read_text()
    section = page.split("## An engine of its own")[1].split("\n## ")[0]
    (shown,) = tomllib.loads(section.split("```toml\n")[1].split("```")[0])["backends"]
    assert msgspec.convert(shown, LinkBackendConfig) == linked
    assert f"--key {linked.options.key}" in section
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", "".join(rows))) == set(LinkOptions.__struct_fields__)
