"""Tests that `lanewise init` writes valid files for every pair of engines, by the table."""

import itertools
import tomllib
from pathlib import Path
from typing import Any

import pytest

from backends.upstream.backend import UpstreamBackendConfig
from gateway.config.config import Config, load_config
from gateway.setup.configuration import EngineChoice, backend_tables, configuration
from gateway.setup.providers import BY_NAME, PROVIDERS, Provider

EXAMPLES = Path(__file__).parents[4] / "deploy" / "upstreams"
# What an example says of a model or a machine of its own.
OWN = {"group", "model", "upstream_model", "base_url", "key_env", "window_tokens", "max_num_seqs"}


def choice(group: Any, provider: Provider | None, **fields: Any) -> EngineChoice:
    if provider is None:
        return EngineChoice(group=group)
    settings: dict[str, Any] = {
        "base_url": provider.base_url or "https://mine.openai.azure.com/openai/v1",
        "upstream_model": provider.model or "served",
        "key_env": provider.key_env,
        **fields,
    }
    return EngineChoice(group=group, provider=provider, **settings)


def written(*choices: EngineChoice) -> Config:
    text = configuration(
        choices,
        port=8090,
        key="sk-tenant-key",
        admin_key="sk-admin-key",
        path="lanewise.toml",
        date="2026-11-22",
    )
    return load_config(text.encode(), {})


@pytest.mark.parametrize(
    ("fast", "deep"),
    list(itertools.product([None, *PROVIDERS], repeat=2)),
    ids=lambda provider: "simulated" if provider is None else provider.name,
)
def test_every_pair_of_engines_is_a_valid_configuration(
    fast: Provider | None, deep: Provider | None
) -> None:
    config = written(choice("fast", fast), choice("deep", deep))
    assert config.server.port == 8090
    assert config.tenants[0].keys == ("sk-tenant-key",)
    for provider, backend in zip((fast, deep), config.backends, strict=True):
        assert (provider is not None) == isinstance(backend, UpstreamBackendConfig)
        if isinstance(backend, UpstreamBackendConfig) and provider is not None:
            assert backend.options.key_env == provider.key_env
    models = [backend.options.model for backend in config.backends]
    assert len(set(models)) == 2, "each can be asked for by its model"


def test_anthropic_is_not_probed_where_it_refuses_our_header() -> None:
    backend = written(choice("fast", None), choice("deep", BY_NAME["anthropic"])).backends[1]
    assert isinstance(backend, UpstreamBackendConfig)
    assert backend.options.probe_path == "/messages"


def test_what_a_server_says_of_its_window_counts() -> None:
    (table,) = backend_tables([choice("fast", BY_NAME["llama-cpp"], window_tokens=4_096)])
    assert table["options"]["window_tokens"] == 4_096
    assert table["options"]["max_output_tokens"] == 2_048


def test_names_and_values_are_quoted() -> None:
    odd = choice("deep", BY_NAME["vllm"], upstream_model='a "model"\\with\nlines \x7f é')
    backend = written(choice("fast", None), odd).backends[1]
    assert isinstance(backend, UpstreamBackendConfig)
    assert backend.options.upstream_model == odd.upstream_model


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_say_what_the_table_says(path: Path) -> None:
    """They agree where both know an option; xAI has an example only."""
    provider = BY_NAME.get(path.stem.replace("_", "-"))
    options = tomllib.loads(path.read_text())["backends"][0]["options"]
    if provider is None:
        assert path.stem == "xai"
        return
    if provider.base_url:
        assert options["base_url"] == provider.base_url
    for name in (options.keys() & provider.options.keys()) - OWN:
        if provider.is_local and name.endswith(("_tokens", "_s")):
            continue  # as large and as slow as that machine is
        assert options[name] == provider.options[name], name
