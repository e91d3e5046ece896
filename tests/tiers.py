"""Which tests run when: tiers by what a test starts, and the tests that a change can reach.

Tiers
    *Plain* tests run in the process of pytest, *service* tests call the ASGI application in it.
    *Heavy* tests start something: a JVM, a browser, a server on a socket, a process, a worker.
    The kind follows from the names in the code of a test, of its fixtures and of the helpers in
    ``tests/`` that they call (:data:`STARTS`), so nobody marks a test by hand.

    The default tier (``make test``) has all plain and service tests and some heavy ones;
    :mod:`.default_tier` says which, and of which tests only some cases.  ``make test-all`` has
    everything.

Changes
    ``pytest --changed`` keeps the tests whose file imports a changed file, directly or through
    other modules, heavy ones among them, and runs the nearest first.

Limits
    A test that starts a process only through the product, without a name of :data:`STARTS`, is
    plain.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import types
import unittest
from collections import deque
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .default_tier import CASES, SMOKE

__all__ = ["HEAVY", "STARTS", "changed_files", "distances", "mark"]

ROOT = Path(__file__).resolve().parent.parent
TESTS = str(Path(__file__).parent)
PACKAGE = "chronicle"

STARTS: dict[str, frozenset[str]] = {
    "spark": frozenset({"SparkSession"}),
    "browser": frozenset({"sync_playwright"}),
    "workers": frozenset({"IsolatedReader", "Pool", "isolation", "fork_server"}),
    "process": frozenset({"subprocess", "multiprocessing", "fork", "stdio_client"}),
    "socket": frozenset({"Listening", "ThreadingHTTPServer", "create_server", "start_server"}),
    "service": frozenset({"create_app"}),
}
"""The names that say what a test starts; the first kind that has one of its names counts."""
HEAVY = frozenset(STARTS) - {"service"}


def mark(items: Collection[pytest.Item]) -> None:
    """Give each test its kind and, where it is so, ``heavy``, ``smoke`` or ``extra``."""
    cases: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        file, _, name = item.nodeid.removeprefix("tests/").partition("::")
        cases.setdefault((file, name.partition("[")[0]), []).append(item)
    for (file, function), some in cases.items():
        kind = kind_of(some[0])
        wanted = CASES.get(file, {}).get(function, len(some))
        kept = {len(some) * number // wanted for number in range(wanted)}
        smoke = {"", function} & set(SMOKE.get(file, ()))
        for number, item in enumerate(some):
            item.add_marker(kind)
            if kind in HEAVY:
                item.add_marker("heavy")
                if smoke or item.name in SMOKE.get(file, ()):
                    item.add_marker("smoke")
            if number not in kept:
                item.add_marker("extra")


def kind_of(item: pytest.Item) -> str:
    """``plain``, or the kind of :data:`STARTS` that a test belongs to."""
    used = _names_of(item)
    return next((kind for kind, names in STARTS.items() if names & used), "plain")


def _names_of(item: pytest.Item) -> frozenset[str]:
    function = inspect.unwrap(item.function)  # type: ignore[attr-defined]
    roots = [function, getattr(getattr(function, "hypothesis", None), "inner_test", function)]
    if issubclass(item.cls or object, unittest.TestCase):  # type: ignore[attr-defined]  # a machine
        roots += _functions(vars(item.module).values())  # type: ignore[attr-defined]
    roots += _fixtures(item)
    return frozenset().union(*(_names(root) for root in roots))


def _fixtures(item: pytest.Item) -> list[Any]:
    """The functions of the fixtures that a test asks for; not those of a whole folder."""
    known = item.session._fixturemanager  # type: ignore[attr-defined]
    ahead = [*item._fixtureinfo.argnames]  # type: ignore[attr-defined]
    ahead += [name for mark in item.iter_markers("usefixtures") for name in mark.args]
    found: dict[str, Any] = {}
    while ahead:
        name = ahead.pop()
        for definition in known.getfixturedefs(name, item) or () if name not in found else ():
            found[name] = inspect.unwrap(definition.func)
            ahead += definition.argnames
            if "getfixturevalue" in (names := _names(found[name])):
                ahead += [one for one in names if known.getfixturedefs(one, item)]
    return list(found.values())


@cache
def _names(function: Any) -> frozenset[str]:
    """The names in the code of a function of the tests, and of those of the tests it uses."""
    found: set[str] = set()
    seen, ahead = {function}, [function]
    while ahead:
        names, functions = _uses(ahead.pop())
        found |= names
        ahead += functions - seen
        seen |= functions
    return frozenset(found)


@cache
def _uses(function: types.FunctionType) -> tuple[set[str], set[types.FunctionType]]:
    """The names in the code of a function, and the functions of the tests that they mean."""
    names = _names_in(function.__code__)
    used = [function.__globals__[name] for name in names if name in function.__globals__]
    names |= {value.__name__ for value in used if isinstance(value, types.ModuleType)}
    names |= {str(getattr(value, "__module__", "")).partition(".")[0] for value in used}
    return names, set(_functions(used))


def _names_in(code: types.CodeType) -> set[str]:
    names = {*code.co_names, *code.co_freevars}
    if "getfixturevalue" in names:
        names |= {text for text in code.co_consts if isinstance(text, str)}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
        elif isinstance(constant, tuple):  # the names of keyword arguments
            names |= {text for text in constant if isinstance(text, str)}
    return names


def _functions(values: Collection[Any]) -> Iterator[types.FunctionType]:
    """Those of the tests among some values, with the methods of their classes."""
    for value in values:
        for part in vars(value).values() if isinstance(value, type) else [value]:
            plain = getattr(part, "fget", part)  # a property
            plain = inspect.unwrap(plain) if callable(plain) else plain
            if isinstance(plain, types.FunctionType) and plain.__code__.co_filename.startswith(
                TESTS
            ):
                yield plain


def changed_files(base: str) -> set[Path]:
    """Files that differ between a commit and the working tree, new ones among them."""

    def git(*arguments: str) -> list[str]:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    names = git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")
    return {ROOT / name for name in names}


def distances(changed: Collection[Path]) -> dict[Path, int]:
    """For each Python file how many imports lie between it and the nearest changed file.

    A file that names a changed file which is no Python is one import away from it.
    """
    importers = dict(_importers())
    for file in changed:
        if file.suffix != ".py":
            importers[file] = {user for user, text in _sources().items() if file.name in text}
    found = dict.fromkeys(changed, 0)
    ahead = deque(found)
    while ahead:
        here = ahead.popleft()
        for file in importers.get(here, set()) - found.keys():
            found[file] = found[here] + 1
            ahead.append(file)
    return found


@cache
def _sources() -> dict[Path, str]:
    """All Python files with their text."""
    skipped = {".venv", ".build", "build", "dist", "web", ".git"}
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name not in skipped]
    files = [*ROOT.glob("*.py"), *(file for folder in folders for file in folder.rglob("*.py"))]
    return {file: file.read_text(encoding="utf-8") for file in files}


@cache
def _importers() -> dict[Path, set[Path]]:
    """For each file those that import it."""
    found: dict[Path, set[Path]] = {}
    for file, text in _sources().items():
        for imported in _imports(file, text):
            found.setdefault(imported, set()).add(file)
    return found


_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|.*)|import[ \t]+([\w.]+))", re.M
)


def _imports(file: Path, text: str) -> Iterator[Path]:
    """The files that a file imports, inside of functions, too, and the file of its fixtures."""
    package = (PACKAGE, *file.relative_to(ROOT).parent.parts)
    if file.name.startswith("test_") and (fixtures := file.parent / "conftest.py").is_file():
        yield fixtures
    for dots, name, names, plain in _IMPORT.findall(text):
        above = package[: len(package) + 1 - len(dots)] if dots else ()
        module = [*above, *filter(None, (plain or name).split("."))]
        for last in ["", *re.findall(r"\w+", names)]:
            parts = [*module, last] if last else module
            if parts[:1] == [PACKAGE]:
                path = ROOT.joinpath(*parts[1:])
                places = (path.with_suffix(".py"), path / "__init__.py")
                yield from (place for place in places if place.is_file())
