"""Tests a release: where the version stands, and what is refused before anything is written."""

import pytest

from deploy.release import (
    CHANGELOG,
    REPEATED,
    ROOT,
    refusal,
    released,
    versions,
    with_version,
)
from gateway.config.version import VERSION
from tests.integration.recorded_release import recordings


@pytest.mark.parametrize("name", REPEATED)
def test_every_file_says_the_version_that_the_gateway_has(name: str) -> None:
    text = (ROOT / name).read_text()
    assert versions(name, text) == {VERSION}
    assert versions(name, with_version(name, text, "7.8.9")) == {"7.8.9"}


def test_what_this_version_wrote_is_recorded() -> None:
    assert VERSION in {path.stem for path in recordings()}


def test_the_changelog_is_cut_at_the_release() -> None:
    text = (ROOT / CHANGELOG).read_text()
    cut = released(text, "7.8.9", "2026-11-23")
    assert cut.count("## Unreleased\n\n## 7.8.9 (2026-11-23)\n") == 1
    assert cut.replace("\n## 7.8.9 (2026-11-23)\n", "") == text
    with pytest.raises(ValueError, match="nothing stands under"):
        released(cut, "7.9.0", "2026-11-24")


@pytest.mark.parametrize(
    ("version", "tags", "changes", "why"),
    [
        ("0.2", [], "", "expected MAJOR.MINOR.PATCH"),
        ("", [], "", "expected MAJOR.MINOR.PATCH"),
        ("0.2.0", [], " M README.md", "commit them first"),
        ("0.2.0", ["v0.2.0"], "", "is tagged already"),
        ("0.1.9", ["v0.1.10"], "", "expected one after 0.1.10"),
        ("0.1.10", [], "", None),  # the first one
        ("0.2.0", ["v0.1.10"], "", None),
    ],
)
def test_what_cannot_be_released(
    version: str, tags: list[str], changes: str, why: str | None
) -> None:
    told = refusal(version, "0.1.10", tags, changes)
    assert (told is None) if why is None else (why in str(told))
