"""Conventions of the sources: layers, light imports, sizes of files and functions, names."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).resolve().parent.parent

LAYERS: dict[str, int] = {
    "errors": 0,
    "core": 1,
    "schema": 2,
    "isolation": 3,
    "store": 4,
    "formats": 4,
    "indexes": 5,
    "query": 6,
    "client": 7,
    "drawing": 7,
    "live": 7,
    "catalog": 8,
    "ingest": 9,
    "api": 10,
    "agents": 10,
    "dbapi": 11,
    "server": 11,
    "spark_connector": 11,
    "commands": 12,
    "cli": 13,
    "bench": 14,
    "tools": 15,
}
"""Rank of each layer; an import may only point to a lower rank or stay in its layer."""

ENTRY = {"__init__"}  # re-exports from every layer, lazily


@cache
def sources() -> list[Path]:
    """Python files of the package, tests and the environment left out."""
    skipped = {"tests", "docs", ".venv", ".build", "build", "dist", "kernel_build", "setup.py"}
    inside = [path for path in ROOT.iterdir() if path.name not in skipped]
    found = [file for path in inside for file in ([path] if path.is_file() else path.rglob("*.py"))]
    return sorted(file for file in found if file.suffix == ".py")


QUERY_LAYERS = (
    "contract", "sql", "conditions", "relational", "pattern", "situations", "windows", "replay",
    "split", "recent", "binding", "plan", "run", "",
)  # fmt: skip
"""Folders of query/, the lowest first: an import points to a lower one."""

UNORDERED = {"."}
"""Packages without a reading order of all their modules; the root has docs/architecture.md."""

IMPORTED_BY_NAME = {
    "bench/__main__.py",
    "cli.py",
    "commands/upkeep.py",
    "ingest/pipeline.py",
    "isolation/fork_server.py",
    "core/native.py",
    "server/__init__.py",
    "spark_connector/discovery/pyspark_chronicle/__init__.py",
}
"""Files that import modules by a string, which the walk below does not see."""


def layer(parts: tuple[str, ...]) -> str:
    """The folder of the root, or the module there, that a module belongs to."""
    return parts[0].removesuffix(".py") if parts else "__init__"


def folder(parts: tuple[str, ...]) -> str:
    """Where a module lies: its directory, or in the root its layer."""
    path = ROOT.joinpath(*parts)
    if path.is_dir():
        return "/".join(parts)
    return "/".join(parts[:-1]) or layer(parts)


def for_types(node: ast.AST) -> TypeGuard[ast.If]:
    """Whether a statement is ``if TYPE_CHECKING:``."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """Statements of a module that run, in functions too; what only types need is left out."""
    ahead = [tree]
    while ahead:
        node = ahead.pop()
        yield node
        parts = (
            ("orelse",) if for_types(node) else ("body", "orelse", "finalbody", "handlers", "cases")
        )
        ahead += reversed([one for part in parts for one in getattr(node, part, ())])


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """A million nodes: no garbage collection looks at them, and they are freed at the end."""
    gc.disable()
    yield
    tree_of.cache_clear()
    gc.enable()


@cache
def imports(path: Path) -> set[tuple[tuple[str, ...], int]]:
    """Modules of the package that a file imports, as parts from the root, each with the line."""
    here = path.relative_to(ROOT).parts
    found = set()
    for node in running(tree_of(path)):
        if isinstance(node, ast.ImportFrom):
            parts = tuple(part for part in (node.module or "").split(".") if part)
            if node.level:
                base = (*here[: len(here) - node.level], *parts)
            elif parts[:1] == ("chronicle",):
                base = parts[1:]
            else:
                continue
            for alias in node.names:
                inner = (*base, alias.name)
                exists = (
                    ROOT.joinpath(*inner).is_dir()
                    or ROOT.joinpath(*base, f"{alias.name}.py").exists()
                )
                if target := inner if exists else base:
                    found.add((target, node.lineno))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = tuple(alias.name.split("."))
                if parts[0] == "chronicle" and len(parts) > 1:
                    found.add((parts[1:], node.lineno))
    return found


def cycles(edges: dict[str, set[str]]) -> list[set[str]]:
    """Sets of nodes that reach one another."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = edges.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found

    reach = {node: reached(node) for node in edges}
    knots = {
        frozenset(other for other in reach[node] if node in reach.get(other, ()))
        for node in edges
        if node in reach[node]
    }
    return sorted(map(set, knots), key=sorted)


def test_imports_point_down() -> None:
    wrong = []
    for path in sources():
        mine = layer(path.relative_to(ROOT).parts)
        if mine in ENTRY:
            continue
        assert mine in LAYERS, f"{path.name} is in no layer: give {mine!r} a rank"
        for target, line in imports(path):
            other = layer(target)
            if other != mine and LAYERS.get(other, -1) >= LAYERS[mine]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_imports_point_down_inside_the_query_layer() -> None:
    rank = {f"query/{name}".removesuffix("/"): i for i, name in enumerate(QUERY_LAYERS)}
    wrong = []
    for path in sources():
        mine = rank.get(folder(path.relative_to(ROOT).parts))
        for target, line in imports(path) if mine is not None else ():
            if rank.get(folder(target), -1) > mine:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {'/'.join(target)}")
    assert not wrong, "\n".join(wrong)
    folders = {folder(path.relative_to(ROOT).parts) for path in (ROOT / "query").rglob("*.py")}
    assert folders == set(rank)


def test_no_cycle_between_folders_at_any_depth() -> None:
    edges: dict[str, set[str]] = {}
    for path in sources():
        parts = path.relative_to(ROOT).parts
        if layer(parts) in ENTRY:
            continue
        mine = folder(parts)
        targets = {folder(target) for target, _ in imports(path)}
        edges.setdefault(mine, set()).update(targets - {mine, *ENTRY})
    assert not cycles(edges)


@pytest.mark.parametrize("name", ["client", "commands", "ingest", "spark_connector"])
def test_no_cycle_between_modules(name: str) -> None:
    edges = {
        module_of(path.relative_to(ROOT).parts): {
            module_of(target) for target, _ in imports(path) if target[0] == name
        }
        for path in sources()
        if layer(path.relative_to(ROOT).parts) == name and path.stem != "__init__"
    }
    assert cycles(edges) == []


def module_of(parts: tuple[str, ...]) -> str:
    return "/".join(parts).removesuffix(".py")


def test_cycles_are_detected() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "d"}, "e": {"a"}}
    assert cycles(edges) == [{"b", "c"}, {"d"}]


def test_imports_for_types_do_not_count() -> None:
    text = (
        "if TYPE_CHECKING:\n    from .one import A\nelse:\n    from .two import A\n"
        "def late():\n    from .three import B\n"
    )
    seen = [node.module for node in running(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    assert seen == ["two", "three"]


def test_modules_are_imported_by_statements() -> None:
    by_name = {
        str(path.relative_to(ROOT))
        for path in sources()
        if "import_module(" in path.read_text(encoding="utf-8")
    }
    assert by_name == IMPORTED_BY_NAME


def test_no_cached_property_of_functools() -> None:
    """Up to Python 3.11 all instances share it; ``lazy`` says what that did."""
    for path in sources():
        assert "import cached_property" not in path.read_text(), path


def test_a_package_names_its_modules_in_a_reading_order() -> None:
    missing = {}
    for package in sorted({path.parent for path in sources() if path.name == "__init__.py"}):
        name = str(package.relative_to(ROOT))
        if name in UNORDERED or "discovery" in name:
            continue
        docstring = ast.get_docstring(tree_of(package / "__init__.py")) or ""
        _, _, order = docstring.partition("Reading order")
        modules = {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}
        if lacking := modules - set(re.findall(r"\w+", order)):
            missing[name] = sorted(lacking)
    assert not missing


def test_the_architecture_page_names_what_is_there() -> None:
    """docs/architecture.md names every folder, and files and functions that are there."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = {path.parent.relative_to(ROOT) for path in sources() if path.name == "__init__.py"}
    as_one = {"spark_connector", "bench", "server", "commands", "client"}  # without their parts
    unnamed = {f.name for f in folders if as_one.isdisjoint(f.parts) and f.name not in page}
    paths = [*sources(), *(ROOT / "tests").rglob("*.py")]
    missing = []
    for match in re.finditer(r"`((?:\w+/)*\w+\.py)`((?:[,| ]+`(?!\w+\.py)\w[\w.]*`)*)", page):
        name, functions = match.groups()
        files = [path for path in paths if str(path).endswith(f"/{name}")]
        text = "".join(path.read_text(encoding="utf-8") for path in files)
        known = set(re.findall(r"(?m)(?:def |class |^)(\w+)\b", text))
        missing += [f"{name} {each}" for each in set(re.findall(r"\w+", functions)) - known]
        missing += [] if files else [name]
    assert (unnamed, missing) == (set(), [])


def docstring_lines(tree: ast.AST) -> int:
    """Lines of all strings that are statements."""
    return sum(
        node.end_lineno - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and node.end_lineno is not None
    )


def test_files_hold_one_mechanism() -> None:
    """Docstrings aside, a file has at most 900 lines."""
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sources()
        if (text := path.read_text(encoding="utf-8")).count("\n") > 900
        and (lines := text.count("\n") - docstring_lines(tree_of(path))) > 900
    }
    assert not long


def test_functions_fit_a_screen() -> None:
    """At most 80 lines, docstring aside, and 10 parameters besides ``self`` or ``cls``; a kernel
    has at most 250 lines.
    """
    large = []
    for path in sources():
        name = str(path.relative_to(ROOT))
        if name.startswith("bench/"):
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                kernel = any("kernel" in ast.unparse(each) for each in node.decorator_list)
                given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                count = sum(each.arg not in ("self", "cls") for each in given)
                first, last = node.lineno, node.end_lineno or node.lineno
                lines = last - first + 1
                if ast.get_docstring(node):
                    lines -= docstring_lines(node.body[0])
                if lines > (250 if kernel else 80) or (count > 10 and not kernel):
                    large.append(f"{name}:{first} {node.name}: {lines} lines, {count} parameters")
    assert not large


def test_modules_open_with_a_docstring() -> None:
    bare = [
        str(path.relative_to(ROOT)) for path in sources() if not ast.get_docstring(tree_of(path))
    ]
    assert not bare


def test_modules_named_in_docstrings_are_there() -> None:
    missing = []
    for path in sources():
        for dots, name in re.findall(r":mod:`~?(\.+)([\w.]+)`", path.read_text(encoding="utf-8")):
            target = path.parents[len(dots) - 1].joinpath(*name.split("."))
            if not (target.is_dir() or target.with_suffix(".py").exists()):
                missing.append(f"{path.relative_to(ROOT)}: {dots}{name}")
    assert not missing


def test_no_module_is_called_utils() -> None:
    banned = {"utils", "util", "helpers", "common", "misc"}
    assert not [path for path in sources() if path.stem in banned]


def test_import_is_light() -> None:
    heavy = [
        *("duckdb", "fastapi", "numba", "numpy", "pandas", "polars"),
        *("pyarrow", "pyspark", "sqlglot", "typer", "uvicorn"),
    ]
    code = f"import chronicle, sys; print(sorted({{*{heavy}}} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_folder_is_packaged() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = set(listed["tool"]["setuptools"]["packages"])
    folders = {path.parent for path in sources() if path.name == "__init__.py"}
    names = {".".join(("chronicle", *path.relative_to(ROOT).parts)) for path in folders}
    names = {name for name in names if ".discovery" not in name}
    assert names - {"chronicle.bench"} == packages - {"pyspark_chronicle"}


def test_tests_have_unique_names() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    doubled = {name for name in names if names.count(name) > 1}
    assert not doubled
