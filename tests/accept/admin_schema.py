"""Schemathesis on the admin API, by the gateway's own schema: over 1,000 cases, and no 5xx."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.hostile.gateway import serving

LIMIT_S = 900
MIN_CASES = 1_000
EXAMPLES = 60  # of each operation
_COUNTED = re.compile(r"([\d,]+) generated")


def main() -> bool:
    """Runs it against a gateway, and says whether all held."""
    with tempfile.TemporaryDirectory(prefix="lw-st-") as name, serving(Path(name)) as both:
        gateway, target = both
        command = [
            *(str(Path(sys.executable).parent / "schemathesis"), "run"),
            f"{gateway.url}/schema/openapi.json",
            *("--include-path-regex", "^/admin", "--checks", "not_a_server_error"),
            *("--header", f"Authorization: Bearer {target.admin_key}"),
            *("--max-examples", str(EXAMPLES), "--phases", "examples,coverage,fuzzing"),
            *("--continue-on-failure", "--no-color", "--workers", "1"),
        ]
        run = subprocess.run(command, cwd=name, capture_output=True, text=True, check=False)
        num_tracebacks = gateway.log.count("Traceback")
    print(run.stdout[-6_000:], run.stderr[-2_000:])
    counted = _COUNTED.search(run.stdout)
    num_cases = int(counted[1].replace(",", "")) if counted else 0
    print(f"{num_cases} cases; {num_tracebacks} tracebacks in the gateway's log")
    return run.returncode == 0 and num_cases >= MIN_CASES and not num_tracebacks
