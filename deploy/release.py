"""Makes a release: `make release VERSION=0.2.0`. It commits and tags here, and pushes nothing.

    gateway/config/version.py    says the version; files that must repeat it are written from there
    CHANGELOG.md                 what is unreleased becomes the release's
    tests/integration/releases   what this version writes to Redis, which later ones must read
    build/release                the wheel, an archive that `docker build` takes, the list of parts

A tree with changes, a version that is no later one, and a tag that exists are refused before
anything is written.
"""

import argparse
import datetime
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "release"
VERSION_FILE = "gateway/config/version.py"
CHANGELOG = "CHANGELOG.md"
UNRELEASED = "## Unreleased\n"
# Files that repeat the version, and what stands before it.
REPEATED = {
    VERSION_FILE: r'^VERSION = "',
    "sdk/python/pyproject.toml": r'^version = "',
    "sdk/typescript/package.json": r'^  "version": "',
    "sdk/typescript/package-lock.json": r'"name": "lanewise",\n +"version": "',
    "deploy/kustomize/one-machine/kustomization.yaml": r"newName: lanewise, newTag: ",
    "deploy/kustomize/three-gateways/kustomization.yaml": r"newName: lanewise, newTag: ",
    "deploy/kustomize/dask/kustomization.yaml": r"newName: lanewise, newTag: ",
}
NUMBER = r"\d+\.\d+\.\d+"


def versions(name: str, text: str) -> set[str]:
    """Returns what a file that repeats the version says."""
    return {found[2] for found in _places(name).finditer(text)}


def with_version(name: str, text: str, version: str) -> str:
    """Returns the file with another version."""
    return _places(name).sub(lambda found: found[1] + version, text)


def released(changelog: str, version: str, date: str) -> str:
    """Returns the changelog with what is unreleased under a version; ValueError if nothing is."""
    before, heading, after = changelog.partition(UNRELEASED)
    if not heading or not after.partition("\n## ")[0].strip():
        raise ValueError(f"{CHANGELOG}: nothing stands under '{UNRELEASED.strip()}'")
    return f"{before}{UNRELEASED}\n## {version} ({date})\n{after}"


def refusal(version: str, current: str, tags: list[str], changes: str) -> str | None:
    """Says why this version cannot be made; None if it can."""
    if re.fullmatch(NUMBER, version) is None:
        return f"VERSION={version!r}: expected MAJOR.MINOR.PATCH, such as 0.2.0"
    if changes:
        return f"the tree has changes; commit them first:\n{changes}"
    if f"v{version}" in tags:
        return f"v{version} is tagged already"
    is_first = f"v{current}" not in tags and version == current
    if not is_first and _number(version) <= _number(current):
        return f"VERSION={version}: expected one after {current}"
    return None


def _places(name: str) -> re.Pattern[str]:
    return re.compile(f"({REPEATED[name]})({NUMBER})", re.M)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _run(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout


def _build(version: str) -> None:
    """Writes what people install: from the tag, so that nothing else gets into it."""
    OUT.mkdir(parents=True, exist_ok=True)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    taken = [line[1:] for line in ignored if line.startswith("!")]
    archive = OUT / f"lanewise-{version}-image.tar.gz"
    inside = (".dockerignore", "deploy/Dockerfile", *taken)
    _run("git", "archive", "--format=tar.gz", "-o", str(archive), f"v{version}", *inside)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q")
    _run(*pip, "--no-deps", "--no-build-isolation", "-w", str(OUT), str(ROOT))
    parts = ("-m", "cyclonedx_py", "requirements", "requirements.lock", "-o")
    _run(sys.executable, *parts, str(OUT / f"lanewise-{version}-sbom.json"))


def main() -> int:
    """Returns 1 where it is refused."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("version")
    version = parser.parse_args().version
    (current,) = versions(VERSION_FILE, (ROOT / VERSION_FILE).read_text())
    why = refusal(version, current, _run("git", "tag").split(), _run("git", "status", "--short"))
    if why is not None:
        print(why, file=sys.stderr)
        return 1
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    changelog = released((ROOT / CHANGELOG).read_text(), version, date)
    (ROOT / CHANGELOG).write_text(changelog)
    for name in REPEATED:
        path = ROOT / name
        path.write_text(with_version(name, path.read_text(), version))
    _run(sys.executable, "-m", "tests.integration.recorded_release")
    _run("git", "add", "-A")
    _run("git", "commit", "-q", "-m", f"Release {version}")
    _run("git", "tag", "-a", f"v{version}", "-m", f"Lanewise {version}")
    _build(version)
    print(f"v{version} is tagged; {OUT.relative_to(ROOT)} has:")
    print("\n".join(sorted(f"  {path.name}" for path in OUT.iterdir() if version in path.name)))
    print(f"  docker build -f deploy/Dockerfile -t lanewise:{version} - < the archive")
    print(f"To publish: git push --follow-tags. To take it back: git tag -d v{version}, git reset.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
