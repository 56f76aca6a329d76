"""The composition root makes each part whole: nothing is put into one later."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
PARTS = {"gw", "services", "made", "pools", "failover", "metrics", "waiting", "access"}


def late_wiring(source: str) -> Iterator[str]:
    """Assignments to attributes of parts."""
    for node in ast.walk(ast.parse(source)):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(each, ast.Attribute) and _last_name(each.value) in PARTS:
                    yield ast.unparse(each)


def _last_name(node: ast.expr) -> str:
    """Returns `gw` of `gw`, of `self._gw` and of `made.gw`."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name.removeprefix("_")


def test_parts_are_complete_when_made() -> None:
    modules = (ROOT / "gateway").rglob("*.py")
    found = {path.name: list(late_wiring(path.read_text())) for path in modules}
    assert {name: late for name, late in found.items() if late} == {}


def test_late_wiring_is_found() -> None:
    planted = "gw.seals = 1\nself._gw.policy, made.gw.x = 1, 2\ngw.state.policy = 3\npools.y += 1"
    assert list(late_wiring(planted)) == ["gw.seals", "self._gw.policy", "made.gw.x", "pools.y"]
