"""The files under deploy/ agree with the product."""

import json
import re
import tomllib
from pathlib import Path

import msgspec
import pytest
import yaml

from backends.link.backend import LinkBackendConfig, LinkOptions
from backends.simulated import gpu, wafer
from backends.simulated.gpu import GpuBackendConfig
from backends.simulated.wafer import WaferBackendConfig
from gateway.config.config import Config, load_config
from gateway.config.sections import ConfigError

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
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    assert {"secrets", "gateway", "redis", "prometheus", "alertmanager", "grafana"} == set(services)
    for service in services.values():
        for volume in service.get("volumes", ()):
            source, _, _ = volume.partition(":")
            if source in compose["volumes"]:
                continue
            assert (DEPLOY / source).resolve().is_file(), source
    shown = {Path(each.partition(":")[0]).name for each in services["grafana"]["volumes"]}
    assert {path.name for path in (DEPLOY.parent / "dashboards").glob("*.json")} <= shown
    scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == ["gateway:8081"]
    gateway = services["gateway"]
    assert gateway["command"][-2:] == ["--admin-address", "0.0.0.0:8081"]
    assert gateway["ports"] == ["127.0.0.1:8080:8080"], "the admin address is not published"


def test_composes_services_outlive_a_reboot_and_their_containers() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        if name != "secrets":  # which ends when it has made them
            assert service["restart"] == "unless-stopped", name
    for name, folder in (
        ("gateway", "/var/lib/lanewise"),
        ("redis", "/data"),
        ("prometheus", "/prometheus"),
        ("alertmanager", "/alertmanager"),
        ("grafana", "/var/lib/grafana"),
    ):
        assert f"{name if name != 'gateway' else 'lanewise'}:{folder}" in services[name]["volumes"]
    assert "--storage.tsdb.path=/prometheus" in services["prometheus"]["command"]


def image_command() -> list[str]:
    """Returns the arguments that the image runs `lanewise` with."""
    (line,) = re.findall(r"^CMD (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    command: list[str] = json.loads(line)
    return command


def test_the_image_serves_with_a_key_of_its_own(tmp_path: Path) -> None:
    assert image_command() == ["serve", "--config", "/etc/lanewise.toml", "--host", "0.0.0.0"]
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert "COPY deploy/image.toml /etc/lanewise.toml" in dockerfile
    assert "VOLUME /var/lib/lanewise" in dockerfile
    assert "LANEWISE_ADMIN_URL=http://127.0.0.1:8081" in dockerfile
    image = (DEPLOY / "image.toml").read_text().replace("/var/lib/lanewise", str(tmp_path))
    first = load_config(image.encode(), {}, makes_key=True)
    assert first == load_config(image.encode(), {}, makes_key=True), "the next start has its key"
    given = load_config(image.encode(), {"LANEWISE_API_KEY": "sk-8c1f0e7ad93b4256"})
    assert given.tenants[0].keys == ("sk-8c1f0e7ad93b4256",)
    example = (DEPLOY / "lanewise.toml").read_bytes()
    with pytest.raises(ConfigError, match="'studio' has a key that is published"):
        load_config(example, {}, host="0.0.0.0")


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
