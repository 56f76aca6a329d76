"""Lists for `GET /v1/models` the router's own name, each backend's model and the policy's aliases.

A second list under `models` has the entries that Codex reads if its `model_catalog_url` points
here; the SDKs ignore it.
"""

from collections.abc import Iterable
from typing import Any

from backends.contract import BackendInfo
from gateway.wire.errors import ProtocolError
from router.policy.policy import AUTO, Policy

OWNER = "lanewise"

_AUTO_TEXT = "The router decides per task: fast, deep, or both."

_BASE_INSTRUCTIONS = (
    "You are a coding agent working in the user's terminal. Read before you change, keep changes "
    "small, run the tests, and say plainly what you did and what you could not do."
)
_EFFORTS = {"low": "Quick", "medium": "Balanced", "high": "Thorough"}


def model_list(
    backends: Iterable[BackendInfo], policy: Policy, created: int, relayed: Iterable[str] = ()
) -> dict[str, Any]:
    """Makes the whole list; models that are only relayed are none for Codex."""
    infos = list(backends)
    widest = max(info.window_tokens for info in infos)
    seeing = {info.model for info in infos if info.accepts_images}
    # `auto` sees if any model does: the router sends a task with an image where it is taken.
    sees = bool(seeing)
    texts = {AUTO: (_AUTO_TEXT, widest, sees)}
    for info in infos:
        kind = "Simulated: " if info.simulated else ""
        text = f"{kind}the {info.group} engine."
        texts.setdefault(info.model, (text, info.window_tokens, info.model in seeing))
    for name, choice in policy.aliases.items():
        texts.setdefault(name, (f"An alias of the policy: {choice.route.value}.", widest, sees))
    return {
        "object": "list",
        "data": [
            {"id": name, "object": "model", "created": created, "owned_by": OWNER}
            for name in dict.fromkeys((*texts, *relayed))
        ],
        "models": [
            _codex_entry(name, text, window, priority, sees_images=sees_images)
            for priority, (name, (text, window, sees_images)) in enumerate(texts.items(), start=1)
        ],
    }


def find_model(catalogue: dict[str, Any], name: str) -> dict[str, Any]:
    """Finds one model, or raises `model_not_found`."""
    for entry in catalogue["data"]:
        if entry["id"] == name:
            found: dict[str, Any] = entry
            return found
    known = ", ".join(entry["id"] for entry in catalogue["data"])
    message = f"The model '{name[:80]}' does not exist. Known models: {known}."
    raise ProtocolError("model_not_found", message, param="model")


def _codex_entry(
    name: str, text: str, window_tokens: int, priority: int, *, sees_images: bool
) -> dict[str, Any]:
    """Makes an entry with the fields that Codex CLI 0.169 requires, and useful others."""
    return {
        "slug": name,
        "display_name": name,
        "description": text,
        "supported_reasoning_levels": [
            {"effort": effort, "description": label} for effort, label in _EFFORTS.items()
        ],
        "default_reasoning_level": "medium",
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": True,
        "priority": priority,
        "support_verbosity": False,
        "truncation_policy": {"mode": "tokens", "limit": 10_000},
        "experimental_supported_tools": [],
        "context_window": window_tokens,
        "max_context_window": window_tokens,
        "input_modalities": ["text", "image"] if sees_images else ["text"],
        "base_instructions": _BASE_INSTRUCTIONS,
    }
