"""Tests our TypeScript client, compiled as it is published, against a real gateway."""

import subprocess

from tests.e2e.gateway_process import ROOT, GatewayProcess
from tests.e2e.node_bin import node_bin
from tests.e2e.node_scripts import run_node

SDK = ROOT / "sdk" / "typescript"


def test_the_client(gateway: GatewayProcess) -> None:
    compiler = SDK / "node_modules" / "typescript" / "bin" / "tsc"
    assert compiler.exists(), "run `make setup`"
    built = subprocess.run(
        [str(node_bin() / "node"), str(compiler)],
        cwd=SDK,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stdout
    assert (SDK / "dist" / "index.d.ts").exists()

    told = run_node("sdk.mjs", gateway)
    assert told["routing"]["route"] == "fast"
    assert told["routing"]["why"]
    assert "beryl-5" in told["chained"]
    assert all(text == final for text, final in told["parallel"])
    assert told["parallel"][0] != told["parallel"][1]
    assert told["many"] == 40
    assert "ruby-6" in told["steered"]
    assert told["steeredAfter"] is True
    assert told["late"] == "response_already_completed"
    assert told["cancelled"] == "cancelled"
    assert told["steeredAndCancelled"] == [None, "response_cancelled", "incomplete"]
    assert told["following"] is None  # no answer to that steer, which went on on its stream
    assert told["unsent"] == "response_cancelled"
    assert told["own"] is True  # none got the answer to that turn
    assert told["aborted"] == 23  # DOMException.TIMEOUT_ERR: the signal's own reason
    assert told["kinds"] == ["started", "text", "rejoined", "text", "done"]
    assert told["whole"] is True
    assert told["numLinks"] == 2
    assert "onyx-1" in told["recovered"]
    assert told["errors"] == {
        "model": "model_not_found",
        "parent": "previous_response_not_found",
        "key": "invalid_api_key",
        "nobody": "connection_failed",
    }
    assert told["typed"] is True
    assert told["closed"] == "client_closed"
    assert told["early"] == [
        ["response.create", "s0", None],
        ["response.cancel", "s0", None],
        ["response.cancel", None, "resp_1"],
    ]
