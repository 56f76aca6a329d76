"""Runs Codex with the configuration that `lanewise init` prints."""

import os
import subprocess
from pathlib import Path

from tests.e2e.node_bin import node_bin

CODEX = Path(__file__).parent / "node" / "node_modules" / ".bin" / "codex"
TIMEOUT_S = 600.0  # bounds a hang: a busy machine reads Codex' prompt for a minute
# Besides what is printed: nothing that calls home, nothing that asks.
QUIET = """
check_for_update_on_startup = false
approval_policy = "never"
sandbox_mode = "danger-full-access"
"""
FEATURES = """
[analytics]
enabled = false

[features]
plugins = false
remote_plugin = false
apps = false
"""

# Of `codex exec` without a snippet: model, address and transport are filled in.
EXEC_CONFIG = """
model = "{model}"
model_provider = "lanewise"
check_for_update_on_startup = false
approval_policy = "never"
sandbox_mode = "danger-full-access"

[analytics]
enabled = false

[features]
plugins = false
remote_plugin = false
apps = false

[model_providers.lanewise]
name = "Lanewise"
base_url = "{base_url}"
wire_api = "responses"
env_key = "LANEWISE_API_KEY"
supports_websockets = {websockets}
model_catalog_url = "{base_url}/models"
stream_max_retries = 1
request_max_retries = 1
"""


def run_codex(
    home: Path, work: Path, config: str, key: str, *arguments: str, **environ: str
) -> "subprocess.CompletedProcess[str]":
    """Runs `codex exec` in `work` with this configuration in `home`, and waits for its end."""
    home.mkdir(parents=True)
    work.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(config)
    return subprocess.run(
        [str(CODEX), "exec", "--skip-git-repo-check", "--cd", str(work), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={
            "HOME": str(home),
            "CODEX_HOME": str(home),
            "PATH": f"{node_bin()}:{os.environ['PATH']}",
            "LANEWISE_API_KEY": key,
            **environ,
        },
    )


def codex_says(folder: Path, snippet: str, key: str, prompt: str, model: str = "auto") -> str:
    """Returns the last message of `codex exec` in an empty folder; raises what it told, if any."""
    last = folder / "last.txt"
    config = snippet.replace('model = "auto"', f'model = "{model}"{QUIET}') + FEATURES
    ran = run_codex(folder / "home", folder, config, key, "-o", str(last), prompt)
    assert ran.returncode == 0, f"{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}"
    return last.read_text().strip()
