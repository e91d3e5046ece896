"""The house stays tidy: layers, light imports, file sizes, names."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LAYERS: dict[str, int] = {
    "errors": 0,
    "compiled": 0,
    "ownership": 1,
    "schema": 1,
    "isolation": 1,
    "soundness": 1,
    "durations": 1,
    "store": 2,
    "indexes": 3,
    "query": 4,
    "formats": 2,
    "incoming": 4,
    "database": 5,
    "ingest": 6,
    "server": 7,
    "spark_connector": 7,
    "bench": 8,
    "commands": 9,
    "cli": 10,
}
"""Rank of each room; an import may only point to a lower rank or stay in its room."""

ENTRY = {"__init__"}  # re-exports from every layer, lazily


def sources() -> list[Path]:
    """Python files of the package, tests and the environment left out."""
    skipped = {"tests", "docs", ".venv", ".build", "build", "dist"}
    return [
        path
        for path in sorted(ROOT.rglob("*.py"))
        if not skipped & set(path.relative_to(ROOT).parts) and ".egg-info" not in str(path)
    ]


ONE_ROOM = {"streams": "database"}
"""Modules of the root that make up one room: a stream of a database knows its database."""


def room(parts: tuple[str, ...]) -> str:
    """The room that a module of the package belongs to."""
    name = parts[0].removesuffix(".py") if parts else "__init__"
    return ONE_ROOM.get(name, name)


def imported_rooms(path: Path) -> set[tuple[str, int]]:
    """Rooms that a file imports, each with the line, those inside functions too."""
    here = path.relative_to(ROOT).parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = here[: len(here) - node.level]
                target = (*base, *(node.module or "").split("."))
                target = tuple(part for part in target if part)
                if target:
                    found.add((room(target), node.lineno))
                else:
                    found |= {(alias.name, node.lineno) for alias in node.names}
            elif node.module and node.module.split(".")[0] == "chronicle":
                parts = tuple(node.module.split(".")[1:])
                names = [parts] if parts else [(alias.name,) for alias in node.names]
                found |= {(room(name), node.lineno) for name in names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "chronicle" and len(parts) > 1:
                    found.add((parts[1], node.lineno))
    return found


def rank(name: str) -> int | None:
    """Rank of a room; None for what is no room of ours."""
    return LAYERS.get(name)


def test_arrows_point_down() -> None:
    wrong = []
    for path in sources():
        mine = room(path.relative_to(ROOT).parts)
        if mine in ENTRY:
            continue
        own = rank(mine)
        assert own is not None, f"{path.name} is in no known room: give {mine!r} a rank"
        for other, line in imported_rooms(path):
            theirs = rank(other)
            if other == mine or theirs is None:
                continue
            if theirs >= own:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_files_hold_one_idea() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sources()
        if (lines := path.read_text(encoding="utf-8").count("\n")) > 600
    }
    assert not long, f"past 600 lines, so two ideas: {long}"


def test_modules_open_with_an_essay() -> None:
    bare = [
        str(path.relative_to(ROOT))
        for path in sources()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not bare


def test_no_room_without_a_name() -> None:
    banned = {"utils", "util", "helpers", "common", "misc"}
    assert not [path for path in sources() if path.stem in banned]


@pytest.mark.parametrize(
    "module", ["pyspark", "fastapi", "uvicorn", "pandas", "polars", "typer", "duckdb", "sqlglot"]
)
def test_import_is_light(module: str) -> None:
    code = f"import chronicle, sys; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_room_is_packaged() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = set(listed["tool"]["setuptools"]["packages"])
    rooms = {path.parent for path in sources() if path.name == "__init__.py"}
    names = {".".join(("chronicle", *path.relative_to(ROOT).parts)) for path in rooms}
    names = {name for name in names if ".discovery" not in name}
    assert names == packages - {"pyspark_chronicle"}


def test_tests_have_unique_names() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    doubled = {name for name in names if names.count(name) > 1}
    assert not doubled
