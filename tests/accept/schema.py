"""Schemathesis on the whole API, by its own schema: 2,000 cases, no 5xx, all as described."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.e2e.gateway_process import GatewayProcess
from tests.hostile.gateway import serving

LIMIT_S = 1_800
MIN_CASES = 2_000
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
_LINES = """# How lines of JSON are written and read.
import json
import schemathesis

@schemathesis.serializer("application/x-ndjson")
def write(context, value):
    return json.dumps(value).encode() + b"\\n"

@schemathesis.deserializer("application/x-ndjson")
def read(context, response):
    lines = response.content.splitlines()
    return json.loads(lines[0]) if lines else {}
"""
_COUNTED = re.compile(r"([\d,]+) generated")


class Part(NamedTuple):
    """Names some of the API, and whose key opens it."""

    paths: str  # a regular expression
    key: str
    examples: int  # of each operation


def main() -> bool:
    """Runs it against a gateway, and says whether all held."""
    with tempfile.TemporaryDirectory(prefix="lw-st-") as name, serving(Path(name)) as both:
        gateway, target = both
        parts = (
            # A stream of events does not end by itself, and no case would come after it.
            Part("^/admin/(?!events)", target.admin_key, 60),
            Part("^/(?!admin)", target.key, 60),
        )
        runs = [_run(gateway, name, part) for part in parts]
        num_tracebacks = gateway.log.count("Traceback")
    num_cases = 0
    for run in runs:
        print(run.stdout[-8_000:], run.stderr[-2_000:])
        counted = _COUNTED.search(run.stdout)
        num_cases += int(counted[1].replace(",", "")) if counted else 0
    print(f"{num_cases} cases; {num_tracebacks} tracebacks in the gateway's log")
    passed = all(run.returncode == 0 for run in runs)
    return passed and num_cases >= MIN_CASES and not num_tracebacks


def _run(gateway: GatewayProcess, folder: str, part: Part) -> "subprocess.CompletedProcess[str]":
    (Path(folder) / "lines.py").write_text(_LINES)
    command = [
        *(str(Path(sys.executable).parent / "schemathesis"), "run"),
        f"{gateway.url}/schema/openapi.json",
        *("--include-path-regex", part.paths, "--checks", ",".join(CHECKS)),
        *("--header", f"Authorization: Bearer {part.key}"),
        *("--max-examples", str(part.examples), "--phases", "examples,coverage,fuzzing"),
        *("--continue-on-failure", "--no-color", "--workers", "1", "--request-timeout", "120"),
    ]
    environ = {**os.environ, "SCHEMATHESIS_HOOKS": "lines", "PYTHONPATH": folder}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
