"""Runs LiteLLM's proxy, from PyPI (`litellm[proxy]`).

Its Responses socket has two ways: to an upstream that it believes to speak sockets itself (only
over TLS: with ws:// it fails with "ssl argument is incompatible with a ws:// URI") it relays; for
any other it asks over SSE and turns events into frames.
"""

from pathlib import Path

from tests.bench.rivals.rival import Mode, Rival, Started, Upstream, same, venv_of, version_of

KEY = "sk-comparison"
CONFIG = """\
model_list:
- model_name: openai
  litellm_params: {{model: openai/fake, api_base: "{url}/v1", api_key: none}}
- model_name: openai-tls
  litellm_params: {{model: openai/fake, api_base: "https://127.0.0.1:{tls_port}/v1", api_key: none}}
- model_name: sse
  litellm_params: {{model: hosted_vllm/fake, api_base: "{url}/v1", api_key: none}}
general_settings: {{master_key: {key}}}
"""


def install(folder: Path) -> str:
    """Installs it with what its proxy needs."""
    return version_of(venv_of(folder, "litellm[proxy]"), "litellm")


def start(folder: Path, scratch: Path, port: int, upstream: Upstream) -> Started:
    """Says how to start one worker by its defaults, less the price list that it would download."""
    config = scratch / "litellm.yaml"
    config.write_text(CONFIG.format(url=upstream.url, tls_port=upstream.tls_port, key=KEY))
    binary = str(folder / "venv" / "bin" / "litellm")
    command = [binary, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    environ = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "SSL_VERIFY": "False"}
    return Started(command, environ, base_path="/v1", ready_path="/health/liveliness")


def _rival(name: str, modes: dict[Mode, str], note: str = "") -> Rival:
    return Rival(
        name=name, routes=True, modes=modes, install=install, start=start, key=KEY, note=note
    )


RIVAL = _rival(
    "LiteLLM",
    {**same("openai", "responses-sse", "chat-sse", "chat-json"), "responses-ws": "sse"},
    "its socket asks the upstream over SSE",
)
RELAYING = _rival(
    "LiteLLM, relaying",
    {"responses-ws": "openai-tls"},
    "from socket to socket, the upstream's with TLS",
)
