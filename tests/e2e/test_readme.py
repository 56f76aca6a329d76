"""The README's own lines, run as they are but for the address: what a stranger pastes must work."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.gateway_process import ROOT, GatewayProcess

README = (ROOT / "README.md").read_text()
SNIPPETS = dict(re.findall(r"^\*\*(.+?)\*\*.*\n\n```python\n([^`]*)```", README, re.M))


def test_the_snippets_are_found() -> None:
    assert set(SNIPPETS) == {"OpenAI SDK", "OpenAI Agents SDK", "LangChain", "Our own client"}


@pytest.mark.parametrize("title", SNIPPETS)
def test_a_snippet_runs(gateway: GatewayProcess, tmp_path: Path, title: str) -> None:
    script = tmp_path / "snippet.py"
    script.write_text(SNIPPETS[title].replace("127.0.0.1:8080", f"127.0.0.1:{gateway.port}"))
    told = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert told.returncode == 0, told.stderr
    assert len(told.stdout.split()) > 5, told.stdout


def test_links_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
