"""`routing` and the response are built from Structs, and from nothing looser."""

import ast
import json
from pathlib import Path

import msgspec
import pytest

from gateway.wire.response_json import ResponseError, failed_json, queued_json
from gateway.wire.routing import RoutedFailover, RoutedVariations, Unrouted
from tests.e2e.events import check_response_object
from tests.unit.gateway.doubles import ROUTING, parsed_create

GATEWAY = Path(__file__).resolve().parents[4] / "gateway"
BUILDERS = [
    *(GATEWAY / "wire" / f"{name}.py" for name in ("output_items", "response", "response_json")),
    GATEWAY / "wire" / "routing.py",
    *(GATEWAY / "task" / f"{name}.py" for name in ("routing", "pipeline", "ending", "warming")),
    *(GATEWAY / "task" / f"{name}.py" for name in ("summary_run", "stages", "context_usage")),
    *(GATEWAY / "run" / f"{name}.py" for name in ("branch", "dispatch")),
    GATEWAY / "chat" / "stream.py",
    GATEWAY / "http" / "background.py",
]


@pytest.mark.parametrize("path", BUILDERS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_nothing_that_builds_a_response_is_any_dict(path: Path) -> None:
    found = [
        f"{path.name}:{node.lineno}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Subscript) and ast.unparse(node) == "dict[str, Any]"
    ]
    assert found == []


def test_what_says_nothing_is_left_out() -> None:
    shown = json.loads(msgspec.json.encode(ROUTING))
    assert list(shown) == [
        *("route", "strategy", "backends", "class", "reason", "why", "policy_version", "pools"),
        *("ratelimit_mode", "context"),
    ]
    assert shown["strategy"] is None
    assert msgspec.json.encode(Unrouted()) == b"{}"


def test_what_is_empty_but_known_is_shown() -> None:
    begun = msgspec.structs.replace(ROUTING, delegations=(), usage={}, generations=())
    shown = json.loads(msgspec.json.encode(begun))
    assert (shown["delegations"], shown["usage"], shown["generations"]) == ([], {}, [])


def test_parts_have_the_names_of_the_wire() -> None:
    failover = RoutedFailover("wafer-a", "wafer-b", "gone")
    assert msgspec.to_builtins(failover) == {"from": "wafer-a", "to": "wafer-b", "error": "gone"}
    assert msgspec.to_builtins(RoutedVariations(5, 3)) == {"asked": 5, "whole": 3}


def test_a_queued_response_has_all_fields_but_routing() -> None:
    queued = json.loads(queued_json(parsed_create(background=True), 100))
    assert (queued["status"], queued["output"], queued["usage"]) == ("queued", [], None)
    assert "routing" not in queued
    check_response_object(queued)


def test_a_stored_response_that_will_not_end_is_told_as_failed() -> None:
    queued = queued_json(parsed_create(background=True), 100)
    failed = json.loads(failed_json(queued, ResponseError("server_error", "It stopped.")))
    assert failed == json.loads(queued) | {
        "status": "failed",
        "error": {"code": "server_error", "message": "It stopped."},
    }
