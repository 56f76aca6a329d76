"""The files under deploy/ agree with the product."""

from pathlib import Path

import yaml

from gateway.config import Config, load_config

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
