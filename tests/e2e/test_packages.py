"""Tests what is built and installed: the gateway with all it needs, and the Python client alone.

Without a network: setuptools is installed, and nothing is resolved.
"""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from gateway.config.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
SDK = ROOT / "sdk" / "python"
# With what the client depends on, and nothing else, in the interpreter's way.
PROGRAM = """
import json, sys
sys.path[:0] = sys.argv[1:]
import lanewise
print(json.dumps([lanewise.__file__, sorted(lanewise.__all__), sorted(sys.modules)]))
"""


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*command, *map(str, arguments)], check=True, capture_output=True, text=True)


def wheel_of(source: Path, into: Path) -> Path:
    """Builds it from a copy: a build leaves folders behind in its source."""
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", into, source)
    (wheel,) = into.glob("*.whl")
    return wheel


def copied(sources: list[str], folder: Path) -> Path:
    for name in sources:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def requirements(project: Path) -> dict[str, str]:
    """Returns names, in the form that metadata has them, and bounds."""
    declared = tomllib.loads(project.read_text())["project"]["dependencies"]
    return dict(re.fullmatch(r"([a-z-]+)(.*)", each).groups() for each in declared)  # type: ignore[union-attr, misc]


def test_the_client_installs_alone_and_needs_two_packages(tmp_path: Path) -> None:
    source = copied(["sdk/python"], tmp_path) / "sdk" / "python"
    wheel = wheel_of(source, tmp_path / "wheels")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names if "dist-info" not in name} == {"lanewise"}
    assert sum(name.endswith(".py") for name in names) == len([*(SDK / "lanewise").glob("*.py")])

    target, others = tmp_path / "target", tmp_path / "others"
    pip("install", "--no-deps", "--no-index", "--target", target, wheel)
    others.mkdir()
    for package in requirements(SDK / "pyproject.toml"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        (others / package).symlink_to(Path(spec.origin).parent)
    # -I -S: neither this checkout nor what is installed for the gateway is to be found.
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(target), str(others)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    path, public, modules = json.loads(said)
    assert Path(path).is_relative_to(target)
    assert {"connect", "connect_sync", "TextDelta"} <= set(public)
    ours = {"__main__", "lanewise", "msgspec", "websockets"}
    assert {name.partition(".")[0] for name in modules} - sys.stdlib_module_names <= ours


def test_the_client_is_of_the_gateways_version_and_bounds() -> None:
    project = tomllib.loads((SDK / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
    bounds = requirements(SDK / "pyproject.toml")
    assert set(bounds) == {"msgspec", "websockets"}
    for package, bound in requirements(ROOT / "pyproject.toml").items():
        if package in bounds:
            assert bound.startswith(bounds[package]), package


def test_the_gateways_wheel_is_whole_where_the_image_builds_it(tmp_path: Path) -> None:
    build, _, _ = (ROOT / "deploy" / "Dockerfile").read_text().partition("\n\n#")
    copies = [line.split()[1:-1] for line in build.splitlines() if line.startswith("COPY ")]
    source = copied([name for names in copies for name in names], tmp_path / "source")
    with zipfile.ZipFile(wheel_of(source, tmp_path / "wheels")) as archive:
        names = set(archive.namelist())
    floors = ("gateway", "router", "backends", "wafer_engine", "sdk/python/lanewise")
    for floor in floors:
        for path in (ROOT / floor).rglob("*"):
            if path.suffix in (".py", ".lua", ".npz", ".json"):
                assert str(path.relative_to(ROOT)).removeprefix("sdk/python/") in names
