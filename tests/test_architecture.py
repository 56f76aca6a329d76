"""The house rules hold for every module, and each rule finds a violation that is planted."""

import json
import re
from pathlib import Path

import pytest

from gateway.metrics.table import METRICS
from tests.house_rules import (
    MAX_FILE_LINES,
    MAX_FUNCTION_LINES,
    MAX_ROOM_FILES,
    MAX_ROOM_LINES,
    RULES,
    House,
    Module,
    Rule,
    class_names_are_unique,
    files_and_functions_fit,
    house_of,
    imports_by_name_are_explained,
    imports_follow_the_table,
    imports_stand_at_the_top,
    names_say_something,
    others_are_imported_where_they_belong,
    public_names_are_documented,
    pure_modules_are_pure,
)
from tests.rooms import CLIENT, FLOORS, ROOMS
from tests.unit.gateway.metric_names import sample_names

ROOT = Path(__file__).resolve().parent.parent


def read_house() -> House:
    modules = []
    for folder in (*(ROOT / floor for floor in FLOORS), ROOT / "sdk" / "python" / CLIENT):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            modules.append(Module(name, path.read_text(), is_package))
    return house_of(modules)


HOUSE = read_house()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_its_rules(rule: Rule) -> None:
    assert list(rule(HOUSE)) == []


def test_every_room_has_modules_and_a_story() -> None:
    for room in ROOMS:
        assert room.name in HOUSE, f"{room.name} is no package"
        assert HOUSE[room.name].docstring


def planted(name: str, source: str, *others: Module) -> House:
    return house_of([Module(name, source), *others])


ENGINE = Module("wafer_engine.batching.engine", '"""An engine."""\n')
DRIVER = Module("backends.drive.driver", '"""Drives.\n\nThis is an edge.\n"""\n')
MAIN = Module("gateway.__main__", '"""Starts."""\n')
CLI = Module("gateway.cli.main", '"""Commands."""\n')
CLIENT_TURN = Module("lanewise.turn", '"""A turn."""\n')
THING = Module("router.pools.thing", '"""A thing."""\nclass Thing:\n    """One."""\n')
DOC = '"""A module."""\n'

VIOLATIONS = [
    (
        imports_follow_the_table,
        planted("wafer_engine.hardware.x", DOC + "import backends.drive.driver", DRIVER),
    ),
    (
        imports_follow_the_table,
        planted("gateway.wire.x", DOC + "from gateway.cli import main", CLI),
    ),
    (imports_follow_the_table, planted("gateway.cli.x", DOC + "import gateway.__main__", MAIN)),
    (
        imports_follow_the_table,
        planted("lanewise.x", DOC + "import wafer_engine.batching.engine", ENGINE),
    ),
    (
        imports_follow_the_table,
        planted("gateway.wire.x", DOC + "import lanewise.turn", CLIENT_TURN),
    ),
    (imports_follow_the_table, planted("gateway.attic.x", DOC)),
    (imports_stand_at_the_top, planted("router.pools.x", DOC + "def f():\n    import json\n")),
    (
        imports_stand_at_the_top,
        planted("router.pools.x", DOC + "if TYPE_CHECKING:\n    import json\n"),
    ),
    (imports_stand_at_the_top, planted("router.pools.x", DOC + "from .pools import Pool\n")),
    (imports_by_name_are_explained, planted("router.pools.x", DOC + "import_module('json')\n")),
    (pure_modules_are_pure, planted("router.pools.x", DOC + "import time\n")),
    (pure_modules_are_pure, planted("router.pools.x", DOC + "from asyncio import sleep\n")),
    (
        pure_modules_are_pure,
        planted("backends.link.x", DOC + "from backends.drive.driver import Driver", DRIVER),
    ),
    (others_are_imported_where_they_belong, planted("router.decide.x", DOC + "import numpy\n")),
    (files_and_functions_fit, planted("router.pools.x", DOC + "\n" * MAX_FILE_LINES)),
    (
        files_and_functions_fit,
        planted("router.pools.x", DOC + "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES),
    ),
    (
        files_and_functions_fit,
        house_of([Module(f"router.pools.x{n}", DOC) for n in range(MAX_ROOM_FILES + 1)]),
    ),
    (
        files_and_functions_fit,
        house_of(
            [Module(f"router.pools.x{n}", "#\n" * 400) for n in range(MAX_ROOM_LINES // 400 + 1)]
        ),
    ),
    (names_say_something, planted("router.pools.utils", DOC)),
    (names_say_something, planted("router.pools.x", DOC + "class PoolManager: ...\n")),
    (
        class_names_are_unique,
        planted("gateway.wire.x", DOC + 'class Thing:\n    """Two."""\n', THING),
    ),
    (public_names_are_documented, planted("router.pools.x", "import json\n")),
    (public_names_are_documented, planted("router.pools.x", DOC + "def f(): ...\n")),
]


@pytest.mark.parametrize(("rule", "house"), VIOLATIONS)
def test_each_rule_finds_what_breaks_it(rule: Rule, house: House) -> None:
    assert list(rule(house)) != []


def test_every_rule_has_a_violation_planted() -> None:
    assert {rule for rule, _ in VIOLATIONS} == set(RULES)


def test_unit_tests_stand_in_the_rooms_they_test() -> None:
    rooms = {room.name for room in ROOMS}
    unit = ROOT / "tests" / "unit"
    folders = {path.parent for path in unit.rglob("test_*.py")} - {unit}
    names = {".".join(folder.relative_to(unit).parts) for folder in folders}
    assert names <= rooms, f"no rooms: {sorted(names - rooms)}"


def test_what_tests_share_is_in_no_test_module() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        for imported, line in Module(path.name, path.read_text()).imports:
            names = imported.split(".")
            shared = names[0] != "tests" or not any(name.startswith("test_") for name in names)
            assert shared, f"{path}:{line} imports {imported}"


METRIC = re.compile(r"\b(?:lanewise_[a-z_]+|vllm:[a-z_]+)")


def test_dashboards_and_rules_ask_for_metrics_that_exist() -> None:
    known = {name for metric in METRICS for name in sample_names(metric)}
    files = [*(ROOT / "dashboards").glob("*.json"), *(ROOT / "dashboards").glob("*.rules.yml")]
    assert files
    for path in files:
        asked = set(METRIC.findall(path.read_text()))
        assert asked <= known, f"{path.name}: {sorted(asked - known)}"


def test_every_metric_of_ours_is_on_a_dashboard() -> None:
    shown: set[str] = set()
    for path in (ROOT / "dashboards").glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                shown.update(METRIC.findall(target["expr"]))
    family = re.compile(r"_(bucket|sum|count)$")
    ours = {metric.name for metric in METRICS if metric.name.startswith("lanewise_")}
    missing = ours - {family.sub("", name) for name in shown}
    assert not missing, f"on no panel: {sorted(missing)}"
