"""Writes the house rules as functions: from modules' sources to what is wrong with them.

The reasons for the rules are in docs/architecture.md and docs/adr/0001.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tests.rooms import CLIENT, FLOORS, ROOMS, Room

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
MAX_ROOM_FILES = 20
MAX_ROOM_LINES = 3_500

IMPURE = frozenset(
    {"asyncio", "time", "random", "os", "socket", "redis", "logging", "subprocess", "threading"}
)
# In a module's docstring: it may do I/O, read clocks and log. Every other module is pure.
EDGE = re.compile(r"\bThis is an edge\.$")
# In a module's docstring: it finds modules at run time, and says why (docs/adr/0026).
BY_NAME = re.compile(r"\bimports by name\b")

BANNED_MODULES = {"utils", "helpers", "common", "misc", "info", "data", "manager", "handler"}
BANNED_NAME = re.compile(
    r"^(utils?|helpers?|common|misc|data|process)$|^Base[A-Z]|(Manager|Handler)$"
)


@dataclass(frozen=True)
class Module:
    """Is one module of ours: its dotted name (a package's own for `__init__`) and its source."""

    name: str
    source: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, self.name)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Returns all of the tree, which is walked once for all rules."""
        return list(ast.walk(self.tree))

    @cached_property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    @property
    def is_edge(self) -> bool:
        return EDGE.search(self.docstring) is not None

    @property
    def num_lines(self) -> int:
        return len(self.source.splitlines())

    @property
    def is_start(self) -> bool:
        return self.name.endswith("__main__")

    @cached_property
    def imports(self) -> list[tuple[str, int]]:
        """Returns every imported module's dotted name, with its line."""
        found: list[tuple[str, int]] = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [(alias.name, node.lineno) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found.append(("." * node.level + (node.module or ""), node.lineno))
                found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
        return found

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


House = Mapping[str, Module]  # dotted name -> module
Rule = Callable[[House], Iterator[str]]


def house_of(modules: list[Module]) -> House:
    return {module.name: module for module in modules}


def room_of(name: str) -> Room | None:
    """Returns the innermost room that holds a module; None: no row of the table does."""
    parts = name.split(".")
    by_name = {room.name: room for room in ROOMS}
    for length in range(len(parts), 0, -1):
        room = by_name.get(".".join(parts[:length]))
        if room is not None:
            # A floor's own room holds what stands in it directly, not packages without a row.
            return room if length > 1 or len(parts) <= 2 else None
    return None


def imported_modules(module: Module, house: House) -> Iterator[tuple[str, int]]:
    """Yields what of ours a module imports: by its name, or one thing out of it."""
    for imported, line in module.imports:
        if imported in house:
            yield imported, line


def imports_follow_the_table(house: House) -> Iterator[str]:
    """Imports point right between floors and up between rooms; so there is no circle."""
    order = {room: number for number, room in enumerate(ROOMS)}
    for module in house.values():
        here = room_of(module.name)
        if here is None:
            yield f"{module.name} is in no room of tests/rooms.py"
            continue
        for imported, line in imported_modules(module, house):
            there = room_of(imported)
            floor, other = module.name.partition(".")[0], imported.partition(".")[0]
            if there is None or there is here:
                continue
            if house[imported].is_start:
                yield f"{module.name}:{line} imports {imported}, which only starts things"
            elif other == CLIENT:
                if CLIENT not in here.others:
                    yield f"{module.name}:{line} imports the client"
            elif floor == CLIENT or FLOORS.index(floor) > FLOORS.index(other):
                yield f"{module.name}:{line} imports {imported}, a floor to its left"
            elif floor == other and not module.is_start and order[there] > order[here]:
                yield f"{module.name}:{line} imports {imported}, a room below"


def imports_stand_at_the_top(house: House) -> Iterator[str]:
    """Imports stand in no function and under no TYPE_CHECKING, and none is relative."""
    for module in house.values():
        at_the_top = {id(node) for node in module.tree.body}
        for node in module.nodes:
            if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in at_the_top:
                yield f"{module.name}:{node.lineno} imports below the top level"
        for imported, line in module.imports:
            if imported.startswith("."):
                yield f"{module.name}:{line} imports relatively"


def imports_by_name_are_explained(house: House) -> Iterator[str]:
    """Only a module that says why may load others by name."""
    for module in house.values():
        called = {
            getattr(node.func, "attr", getattr(node.func, "id", ""))
            for node in module.nodes
            if isinstance(node, ast.Call)
        }
        if called & {"import_module", "__import__"} and not BY_NAME.search(module.docstring):
            yield f"{module.name} imports by name and does not say why"


def pure_modules_are_pure(house: House) -> Iterator[str]:
    """A pure module does no I/O, reads no clock, and imports no edge."""
    for module in house.values():
        if module.is_edge:
            continue
        for imported, line in module.imports:
            if imported.partition(".")[0] in IMPURE:
                yield f"{module.name}:{line} is pure, yet imports {imported}"
            elif imported in house and house[imported].is_edge:
                yield f"{module.name}:{line} is pure, yet imports the edge {imported}"


def others_are_imported_where_they_belong(house: House) -> Iterator[str]:
    """Packages of others are imported only in the rooms whose row names them."""
    for module in house.values():
        room = room_of(module.name)
        for imported, line in module.imports:
            top = imported.partition(".")[0]
            if not top or top in {CLIENT, *FLOORS} or top in sys.stdlib_module_names:
                continue
            if room is not None and top not in room.others:
                yield f"{module.name}:{line} imports {top}"


def files_and_functions_fit(house: House) -> Iterator[str]:
    """Files, functions and rooms stay small."""
    num_files: Counter[str] = Counter()
    num_lines: Counter[str] = Counter()
    for module in house.values():
        room = room_of(module.name)
        if room is not None:
            num_files[room.name] += 1
            num_lines[room.name] += module.num_lines
        if module.num_lines > MAX_FILE_LINES:
            yield f"{module.name} has {module.num_lines} lines"
        for function in module.functions:
            assert function.end_lineno is not None
            length = function.end_lineno - function.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{module.name}.{function.name} has {length} lines"
    for name, count in num_files.items():
        if count > MAX_ROOM_FILES:
            yield f"{name} has {count} files"
    for name, count in num_lines.items():
        if count > MAX_ROOM_LINES:
            yield f"{name} has {count} lines"


def names_say_something(house: House) -> Iterator[str]:
    """No name stands for a drawer or a manager."""
    for module in house.values():
        if BANNED_MODULES & set(module.name.split(".")):
            yield f"{module.name} is a drawer, not a module"
        for node in module.nodes:
            if isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
            ) and BANNED_NAME.search(node.name):
                yield f"{module.name}:{node.lineno} {node.name}"


def class_names_are_unique(house: House) -> Iterator[str]:
    """A public class name means one thing on all floors."""
    defined: defaultdict[str, list[str]] = defaultdict(list)
    for module in house.values():
        if module.name.partition(".")[0] != CLIENT:
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    defined[node.name].append(module.name)
    for name, places in defined.items():
        if len(places) > 1:
            yield f"{name} is defined in {', '.join(sorted(places))}"


def public_names_are_documented(house: House) -> Iterator[str]:
    """Every module and every public function and class has a docstring."""
    for module in house.values():
        if not module.docstring:
            yield f"{module.name} has no docstring"
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not (
                node.name.startswith("_") or ast.get_docstring(node)
            ):
                yield f"{module.name}:{node.lineno} {node.name} has no docstring"


RULES: tuple[Rule, ...] = (
    imports_follow_the_table,
    imports_stand_at_the_top,
    imports_by_name_are_explained,
    pure_modules_are_pure,
    others_are_imported_where_they_belong,
    files_and_functions_fit,
    names_say_something,
    class_names_are_unique,
    public_names_are_documented,
)
