"""Links of the pages lead somewhere; tests/e2e/test_snippets.py runs their snippets."""

import re

from tests.e2e.gateway_process import ROOT


def test_links_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
