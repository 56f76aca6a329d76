"""Writes a configuration for two engines, with a comment wherever a choice was made."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from backends.contract import BackendGroup
from gateway.setup.providers import SIMULATED, Provider

SIMULATED_KINDS: dict[BackendGroup, str] = {"fast": "wafer", "deep": "gpu"}
MIN_WINDOW_TOKENS = 2_048  # what a server lists below that is a mistake

# These suit one person or a small team: an engine's own limits come before them.
_LIMITS = "{ requests_per_min = 600, tokens_per_min = 4000000, max_concurrent = 32 }"


class EngineChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Names the engine of one group; without a provider it is simulated."""

    group: BackendGroup
    provider: Provider | None = None
    base_url: str = ""
    upstream_model: str = ""
    key_env: str | None = None
    window_tokens: int | None = None  # as the server says; None: the provider's

    @property
    def title(self) -> str:
        """Returns what a person calls it."""
        if self.provider is None:
            return f"a {SIMULATED} {SIMULATED_KINDS[self.group]}"
        model = "".join(filter(str.isprintable, self.upstream_model))  # it stands in a comment
        return f"{model} on {self.provider.title}"


def backend_tables(choices: Sequence[EngineChoice]) -> list[dict[str, Any]]:
    """Returns the `backends` of a configuration; names and models are unique in it."""
    tables: list[dict[str, Any]] = []
    for choice in choices:
        if choice.provider is None:
            kind = SIMULATED_KINDS[choice.group]
            tables.append({"kind": kind, "name": kind})
            continue
        others = [other for other in choices if other is not choice and other.provider is not None]
        is_twice = any(other.provider == choice.provider for other in others)
        same_model = any(other.upstream_model == choice.upstream_model for other in others)
        name, model = choice.provider.name, choice.upstream_model
        options: dict[str, Any] = {
            "group": choice.group,
            "model": f"{model}-{choice.group}" if same_model else model,
            "upstream_model": model,
            "base_url": choice.base_url or choice.provider.base_url,
            **choice.provider.options,
        }
        if choice.key_env is not None:
            options["key_env"] = choice.key_env
        if choice.window_tokens is not None:
            window_tokens = max(choice.window_tokens, MIN_WINDOW_TOKENS)
            options["window_tokens"] = window_tokens
            limit_tokens = options.get("max_output_tokens", window_tokens)
            options["max_output_tokens"] = min(limit_tokens, window_tokens // 2)
        named = f"{name}-{choice.group}" if is_twice else name
        tables.append({"kind": "upstream", "name": named, "options": options})
    return tables


def configuration(
    choices: Sequence[EngineChoice], *, port: int, key: str, admin_key: str, path: str, date: str
) -> str:
    """Returns the file's text; `path` is what its comments call it."""
    engines = " and ".join(f"{choice.title} ({choice.group})" for choice in choices)
    parts = [
        f"""\
# Lanewise with {engines}; written by `lanewise init` on {date}.
#   serve it:  make run ARGS="--config {path}"    or  lanewise serve --config {path}
#   check it:  lanewise doctor --config {path}
# It holds keys: keep it readable by you alone. All settings: README.md, deploy/lanewise.toml.

[server]
host = "127.0.0.1"   # for others to reach it: 0.0.0.0, with TLS (docs/operations.md)
port = {port}

# Without a Redis of your own an embedded one is started: one process, and it forgets when it ends.
# [redis]
# url = "redis://127.0.0.1:6379"

[[tenants]]
id = "me"
keys = [{_value(key)}]   # what your clients send
limits.fast = {_LIMITS}
limits.deep = {_LIMITS}

[[admin.keys]]
name = "me"
key = {_value(admin_key)}   # for `lanewise policy`, `keys` and `tenants`: LANEWISE_ADMIN_KEY
""",
    ]
    for choice, table in zip(choices, backend_tables(choices), strict=True):
        parts.append(_backend(choice, table))
    return "\n".join(parts)


def _backend(choice: EngineChoice, table: Mapping[str, Any]) -> str:
    """Returns the section of one engine."""
    if choice.provider is None:
        text = f"# {choice.group}: simulated, its words are made up (docs/engines.md).\n"
    else:
        text = f"# {choice.group}: {choice.title}. Facts: {choice.provider.source}, 2026-11.\n"
    text += f"[[backends]]\nkind = {_value(table['kind'])}\nname = {_value(table['name'])}\n"
    comments = {
        "model": "what clients call it, besides auto",
        "upstream_model": "what it is called there",
        "key_env": "the environment variable with the key, which is kept nowhere else",
        "window_tokens": "prompt and answer together",
    }
    if "options" in table:
        text += "\n[backends.options]\n"
        for name, value in table["options"].items():
            comment = f"   # {comments[name]}" if name in comments else ""
            text += f"{name} = {_value(value)}{comment}\n"
    return text


def _value(value: Any) -> str:
    """Returns a TOML value; JSON's strings, numbers, truths and lists are TOML's."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
