"""Tests the model list: every name a request may use, in the SDK's form and in Codex's."""

import pytest
from openai.types import Model

from backends.contract import BackendInfo
from gateway.http.model_list import find_model, model_list
from gateway.wire.errors import ProtocolError
from router.classify.task import Route
from router.policy.policy import Choice, Policy

INFOS = [
    BackendInfo(name="w", model="quick", group="fast", window_tokens=1000, max_output_tokens=100),
    BackendInfo(name="w2", model="quick", group="fast", window_tokens=1000, max_output_tokens=100),
    BackendInfo(
        name="g",
        model="thorough",
        group="deep",
        window_tokens=5000,
        max_output_tokens=100,
        accepts_images=True,
        simulated=False,
    ),
]
POLICY = Policy(aliases={"careful": Choice(route=Route.DEEP), "quick": Choice(route=Route.FAST)})

# Found by deleting fields until Codex CLI 0.169 refused the list (2026-11).
CODEX_NEEDS = {
    "slug",
    "display_name",
    "supported_reasoning_levels",
    "shell_type",
    "visibility",
    "supported_in_api",
    "priority",
    "support_verbosity",
    "truncation_policy",
    "experimental_supported_tools",
    "base_instructions",
}


def test_every_name_is_listed_once() -> None:
    catalogue = model_list(INFOS, POLICY, 100)
    assert [entry["id"] for entry in catalogue["data"]] == ["auto", "quick", "thorough", "careful"]
    for entry in catalogue["data"]:
        Model.model_validate(entry, strict=True)
        assert find_model(catalogue, entry["id"]) == entry


def test_codex_finds_what_it_needs() -> None:
    entries = model_list(INFOS, POLICY, 100)["models"]
    assert [entry["slug"] for entry in entries] == ["auto", "quick", "thorough", "careful"]
    for entry in entries:
        assert entry.keys() >= CODEX_NEEDS
        assert not {"use_responses_lite", "tool_mode"} & entry.keys()
    windows = {entry["slug"]: entry["context_window"] for entry in entries}
    assert windows == {"auto": 5000, "quick": 1000, "thorough": 5000, "careful": 5000}
    seen = {entry["slug"]: "image" in entry["input_modalities"] for entry in entries}
    assert seen == {"auto": True, "quick": False, "thorough": True, "careful": True}
    texts = {entry["slug"]: entry["description"] for entry in entries}
    assert texts["quick"].startswith("Simulated: ")
    assert not texts["thorough"].startswith("Simulated")
    assert "deep" in texts["careful"]


def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(ProtocolError) as caught:
        find_model(model_list(INFOS, POLICY, 100), "x" * 500)
    error = caught.value
    assert (error.code, error.param) == ("model_not_found", "model")
    assert (error.kind.status, error.kind.socket_status) == (404, 400)
    assert "auto, quick, thorough, careful" in error.message
    assert len(error.message) < 300
