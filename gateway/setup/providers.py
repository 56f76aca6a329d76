"""Lists who serves engines: one record each, of what `lanewise init` writes for it.

Names, windows and dialects were read in 2026-11, from the page that each record names.
"""

from typing import Any

import msgspec

from backends.contract import BackendGroup


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a service or a server that speaks one of OpenAI's protocols."""

    name: str  # as flags and backends are called
    title: str
    groups: tuple[BackendGroup, ...]  # that it serves well, the better first
    base_url: str
    path: str = "/v1"  # of its API, added to an address that has none
    source: str  # of these facts
    key_env: str | None = None
    needs_key: bool = True
    is_local: bool = False  # a server of the user's own; its base_url has the usual port
    owned_by: str = ""  # how it signs its list of models, where several use one port
    model: str | None = None  # by default; None: the first that it lists, or the user says
    options: dict[str, Any] = {}  # of the upstream, besides those above


_HOSTED: dict[str, Any] = {"first_token_timeout_s": 600, "idle_timeout_s": 300}  # it may think long
_LOCAL: dict[str, Any] = {"first_token_timeout_s": 300, "probe_interval_s": 2}  # it loads the model

PROVIDERS = (
    Provider(
        name="cerebras",
        title="Cerebras",
        groups=("fast", "deep"),
        base_url="https://api.cerebras.ai/v1",
        source="https://inference-docs.cerebras.ai/models/overview",
        key_env="CEREBRAS_API_KEY",
        model="gpt-oss-120b",
        options={
            "protocol": "chat",
            "window_tokens": 131_072,  # 65536 on the free tier
            "max_output_tokens": 32_768,
            "omit": ["prompt_cache_key"],  # refused there
            "prediction": "field",  # it checks a predicted answer in blocks (preview)
            "first_token_timeout_s": 20,
            "idle_timeout_s": 10,  # at thousands of tokens a second, silence is a fault
        },
    ),
    Provider(
        name="groq",
        title="Groq",
        groups=("fast", "deep"),
        base_url="https://api.groq.com/openai/v1",
        source="https://console.groq.com/docs/openai",
        key_env="GROQ_API_KEY",
        model="openai/gpt-oss-120b",
        options={
            "protocol": "chat",
            "window_tokens": 131_072,
            "max_output_tokens": 32_768,
            "omit": ["prompt_cache_key"],  # not among the fields that it names
            "first_token_timeout_s": 20,
            "idle_timeout_s": 10,
        },
    ),
    Provider(
        name="openai",
        title="OpenAI",
        groups=("deep", "fast"),
        base_url="https://api.openai.com/v1",
        source="https://platform.openai.com/docs/models",
        key_env="OPENAI_API_KEY",
        model="gpt-5.6",
        options={
            "protocol": "responses-ws",
            "window_tokens": 400_000,
            "max_output_tokens": 128_000,
            "accepts_images": True,
            "accepts_files": True,
            "seals_reasoning": True,
            "custom_tools": "native",
            "socket_max_age_s": 3_300,  # sockets live for 60 minutes there
            **_HOSTED,
        },
    ),
    Provider(
        name="azure",
        title="Azure OpenAI",
        groups=("deep", "fast"),
        base_url="",  # of the user's own resource
        path="/openai/v1",
        source="https://learn.microsoft.com/azure/ai-services/openai/api-version-lifecycle",
        key_env="AZURE_OPENAI_API_KEY",
        options={
            "protocol": "responses",
            "key_header": "api-key",
            "window_tokens": 400_000,
            "max_output_tokens": 128_000,
            "accepts_images": True,
            "accepts_files": True,
            "seals_reasoning": True,
            "custom_tools": "native",
            **_HOSTED,
        },
    ),
    Provider(
        name="anthropic",
        title="Anthropic, by its OpenAI-compatible endpoint",
        groups=("deep", "fast"),
        base_url="https://api.anthropic.com/v1",
        source="https://platform.claude.com/docs/en/api/openai-sdk",
        key_env="ANTHROPIC_API_KEY",
        model="claude-opus-5-5",
        options={
            "protocol": "chat",
            "window_tokens": 1_000_000,
            "max_output_tokens": 128_000,
            "accepts_images": True,
            "system_messages": "first",  # it moves all others to the beginning
            # Its list of models is not of that endpoint: it takes the key as x-api-key alone, and
            # answers 401 to ours. This path answers any GET with 405, which is a sign of life.
            "probe_path": "/messages",
            **_HOSTED,
        },
    ),
    Provider(
        name="openrouter",
        title="OpenRouter",
        groups=("deep", "fast"),
        base_url="https://openrouter.ai/api/v1",
        source="https://openrouter.ai/docs/api-reference/overview",
        key_env="OPENROUTER_API_KEY",
        model="openai/gpt-oss-120b",
        options={
            "protocol": "chat",
            "prefill": "last_message",
            "window_tokens": 131_072,
            "max_output_tokens": 32_768,
            **_HOSTED,
        },
    ),
    Provider(
        name="vllm",
        title="vLLM",
        groups=("deep", "fast"),
        base_url="http://127.0.0.1:8000/v1",
        source="https://docs.vllm.ai/en/latest/serving/openai_compatible_server",
        key_env="VLLM_API_KEY",
        needs_key=False,
        is_local=True,
        owned_by="vllm",
        options={
            "protocol": "chat",
            "prefill": "continue_final_message",
            "max_output_tokens": 32_768,
            "takes_min_tokens": True,
            **_LOCAL,
        },
    ),
    Provider(
        name="sglang",
        title="SGLang",
        groups=("deep", "fast"),
        base_url="http://127.0.0.1:30000/v1",
        source="https://docs.sglang.ai/basic_usage/openai_api_completions.html",
        key_env="SGLANG_API_KEY",
        needs_key=False,
        is_local=True,
        owned_by="sglang",
        options={
            "protocol": "chat",
            "max_output_tokens": 32_768,
            "max_tokens_field": "max_tokens",  # every version knows this one
            **_LOCAL,
        },
    ),
    Provider(
        name="llama-cpp",
        title="llama.cpp",
        groups=("fast", "deep"),
        base_url="http://127.0.0.1:8080/v1",
        source="https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
        key_env="LLAMA_API_KEY",
        needs_key=False,
        is_local=True,
        owned_by="llamacpp",
        options={"protocol": "responses", "max_output_tokens": 8_192, "max_num_seqs": 4, **_LOCAL},
    ),
    Provider(
        name="ollama",
        title="Ollama",
        groups=("fast", "deep"),
        base_url="http://127.0.0.1:11434/v1",
        source="https://github.com/ollama/ollama/blob/main/docs/openai.md",
        needs_key=False,
        is_local=True,
        owned_by="library",
        options={
            "protocol": "chat",
            "window_tokens": 32_768,  # its OLLAMA_CONTEXT_LENGTH
            "max_output_tokens": 16_384,
            "max_num_seqs": 4,  # its OLLAMA_NUM_PARALLEL
            "max_tokens_field": "max_tokens",  # the only one it knows
            **_LOCAL,
        },
    ),
)
SIMULATED = "simulated"  # instead of a provider: the wafer for fast, the GPU server for deep
BY_NAME = {provider.name: provider for provider in PROVIDERS}
