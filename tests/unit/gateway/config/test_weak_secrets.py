"""Tests which secrets may guard a public address, and that none of this repository's may."""

import random
import re
from pathlib import Path

import pytest

from gateway.config.weak_secrets import PUBLISHED, weakness

ROOT = Path(__file__).resolve().parents[4]
FOLDERS = ("deploy", "docs", "examples", "gateway", "sdk/python", "sdk/typescript/src")
SUFFIXES = {".md", ".toml", ".yaml", ".yml", ".py", ".sh", ".ts", ".ipynb", ""}

# A key by its form, or what is given as one: keys = ["..."], api_key="...", LANEWISE_ADMIN_KEY=...
KEY = re.compile(r"\bsk-[A-Za-z0-9_-]{4,}")
GIVEN = re.compile(
    r"(?:\bkeys?|_keys?|_KEY|_PEPPERS|peppers)\"?\s*[=:]\s*\[?\s*[\"']?([A-Za-z0-9:_.-]{8,})[\"']"
)


def published_secrets() -> dict[str, str]:
    """Returns all in the repository that is a key or given as one, and where it stands."""
    paths = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "Makefile"]
    for folder in FOLDERS:
        paths += [path for path in (ROOT / folder).rglob("*") if "node_modules" not in path.parts]
    found: dict[str, str] = {}
    for path in paths:
        if path.is_file() and path.suffix in SUFFIXES and path.name != "weak_secrets.py":
            text = path.read_text()
            for secret in (*KEY.findall(text), *GIVEN.findall(text)):
                found[secret] = str(path.relative_to(ROOT))
    return found


def test_no_secret_of_the_repository_is_taken() -> None:
    found = published_secrets()
    assert {"sk-studio-change-me", "sk-lanewise-dev", "sk-engine-change-me"} <= set(found)
    taken = {secret: where for secret, where in found.items() if weakness(secret) is None}
    assert taken == {}, "add them to PUBLISHED in gateway/config/weak_secrets.py"


def test_what_is_listed_as_published_is() -> None:
    text = "".join(path.read_text() for path in (ROOT / "deploy").glob("*.toml"))
    text += "".join(path.read_text() for path in (ROOT / "gateway/config").glob("*.py"))
    assert [secret for secret in PUBLISHED if secret not in text] == []


WEAK = [
    *("password", "12345678", "sk-short-1f0e7a", "passwordpassword", "password123456789"),
    *("aaaaaaaaaaaaaaaaaaaaaaaa", "sk-0123456789abcdef", "abcdefghijklmnopqrstuvwxyz"),
    *("changemechangeme", "sk-your-key-here-please", "00112233445566778899", "P@ssw0rd12345678"),
    *("qwertyuiopasdfghjkl", "lanewise-admin-key", "sk-test-tenant-key-1", "abcabcabcabcabcabc"),
]


@pytest.mark.parametrize("secret", WEAK)
def test_weak_secrets_are_found(secret: str) -> None:
    fault = weakness(secret)
    assert fault is not None
    assert secret not in fault


def test_random_secrets_are_taken() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    refused = [
        secret
        for secret in (f"sk-{chance.randbytes(16).hex()}" for _ in range(5_000))
        if weakness(secret) is not None
    ]
    assert refused == [], f"seed {seed}"
    assert weakness("correct-horse-battery-staple") is None
