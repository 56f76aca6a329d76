"""The examples under deploy/upstreams load, and say what they are meant to."""

from pathlib import Path

import pytest

from backends.upstream.backend import UpstreamBackendConfig
from backends.upstream.options import check_options
from gateway.config.config import load_config

EXAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "upstreams"

# File -> group, protocol, whether a key is needed.
EXPECTED = {
    "cerebras": ("fast", "chat", True),
    "openai": ("deep", "responses-ws", True),
    "azure": ("deep", "responses", True),
    "xai": ("deep", "responses-ws", True),
    "vllm": ("deep", "chat", False),
    "sglang": ("deep", "chat", False),
    "ollama": ("fast", "chat", False),
    "llama_cpp": ("fast", "responses", False),
}


def test_every_example_is_expected() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.toml")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_loads(name: str) -> None:
    config = load_config((EXAMPLES / f"{name}.toml").read_bytes(), {})
    (backend,) = config.backends
    assert isinstance(backend, UpstreamBackendConfig)
    options = backend.options
    check_options(options)
    assert (options.group, options.protocol, options.key_env is not None) == EXPECTED[name]
    assert options.max_output_tokens < options.window_tokens
    is_remote = options.base_url.startswith("https://")
    assert is_remote or "127.0.0.1" in options.base_url, "keys travel encrypted"
    assert options.key_env is not None or not is_remote
