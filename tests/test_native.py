"""Kernels in the package: machine code for the types that are listed, never stale, no compiler."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chronicle.core import native
from chronicle.live.bank import predicate_index
from chronicle.live.bank.predicate_index import _narrowed
from chronicle.query.situations import join_kernels
from chronicle.query.situations.deriving import COLUMNS, _room
from chronicle.store.node import find_children

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("core", "store", "indexes", "query", "live", "formats")


def test_no_compiler_is_loaded() -> None:
    program = (
        "import sys, chronicle, chronicle.api.database, chronicle.query.engine, chronicle.live\n"
        "import chronicle.query.pattern.match_stream, chronicle.ingest, chronicle.cli\n"
        "print(sorted({'numba', 'llvmlite', 'pandas'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_an_array_of_another_type_is_refused_with_its_form() -> None:
    table = np.arange(80, dtype=np.int64).reshape(8, 10)
    assert find_children(table, 31, 35) == (0, 6, 1, 5)
    other = table.astype(np.int32)
    other.flags.writeable = False
    with pytest.raises(TypeError, match=r"find_children has no form for \(const int32\[:, :\], "):
        find_children(other, 31, 35)
    with pytest.raises(TypeError, match=r"no form for \(int64\[any, any\], int64, float64\)"):
        find_children(table[:, ::2], 31, 3.5)
    with pytest.raises(TypeError, match=r"no form for \(\)"):
        find_children()


def test_numbers_beyond_64_bits_are_refused() -> None:
    table = np.arange(80, dtype=np.int64).reshape(8, 10)
    assert find_children(table, np.int32(31), np.int64(35)) == find_children(table, 31, 35)
    with pytest.raises(TypeError, match="no form"):
        find_children(table, 1 << 63, 35)


def test_memory_of_a_kernel_belongs_to_its_result() -> None:
    out = np.arange(3 * COLUMNS, dtype=np.int64).reshape(3, COLUMNS)
    found = [_room(out, 3) for _ in range(1000)]
    assert all(each.shape == (70, COLUMNS) and not each.flags.owndata for each in found)
    last = found[-1]
    last[:3] = out
    del found
    np.testing.assert_array_equal(last[:3], out)
    wide = np.zeros((100, COLUMNS), np.int64)
    same = _room(wide, 3)
    same[0, 0] = 7
    assert wide[0, 0] == 7


def test_a_kernel_that_was_changed_is_an_error_at_its_import() -> None:
    function = native.FUNCTIONS["store.node.find_children"]
    assert native.kernel(function) is find_children
    changed: dict[str, Any] = {**function.__globals__, "__name__": function.__module__}
    exec("def find_children(table, start, end):\n    return 1, 2, 3, 4", changed)
    with pytest.raises(ImportError, match=r"store.node.find_children was changed: run `make kern"):
        native.kernel(changed["find_children"])
    exec("def find_nothing(table):\n    return 1", changed)
    with pytest.raises(ImportError, match="find_nothing is not among the compiled kernels"):
        native.kernel(changed["find_nothing"])


def test_a_constant_that_a_kernel_reads_is_part_of_it() -> None:
    assert join_kernels.OPEN != 5
    function = native.FUNCTIONS["query.situations.join_kernels._relation"]
    same = native.digest_of(function)
    around = {**function.__globals__}
    around["OPEN"] = np.int64(5)
    changed = type(function)(function.__code__, around, function.__name__)
    assert native.digest_of(changed) != same


def test_each_kernel_that_python_calls_has_a_form() -> None:
    """Calls outside of kernels: by name, imported or not, and as a module's attribute."""
    forms = tomllib.loads((ROOT / "kernel_build" / "forms.toml").read_text())
    kernels, called = set(), set()
    for path in (f for d in FOLDERS for f in ROOT.glob(f"{d}/**/*.py")):
        module = path.relative_to(ROOT).with_suffix("").parts
        tree = ast.parse(path.read_text())
        homes = imported_names(tree, module)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(mark, ast.Name) and mark.id == "kernel" for mark in node.decorator_list
            ):
                kernels.add(".".join((*module, node.name)))
                continue
            for part in ast.walk(node):
                target = part.func if isinstance(part, ast.Call) else None
                if isinstance(target, ast.Name):
                    called.add(homes.get(target.id, ".".join((*module, target.id))))
                elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                    called.add(f"{homes.get(target.value.id)}.{target.attr}")
    listed = {f"{module}.{name}" for module, names in forms.items() for name in names}
    assert listed <= kernels
    assert len(called & kernels) > 100
    assert called & kernels <= listed


def imported_names(tree: ast.Module, module: tuple[str, ...]) -> dict[str, str]:
    """What relative imports call, by the names that they give it."""
    return {
        each.asname or each.name: ".".join(
            (*module[: len(module) - node.level], *(node.module or "").split("."), each.name)
        ).replace("..", ".")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for each in node.names
    }


def test_the_fields_of_a_named_tuple_are_those_that_were_compiled() -> None:
    """Machine code reads them by place; a class that has changed since is told."""
    arguments = symbols_of_nothing()
    assert _narrowed(*arguments)
    moved = namedtuple("moved", "test first member")
    arguments[7] = moved(arguments[7].first, arguments[7].test, arguments[7].member)
    with pytest.raises(TypeError, match="_narrowed has no form"):
        _narrowed(*arguments)


def symbols_of_nothing() -> list[Any]:
    words, table = np.zeros(1, np.int64), np.zeros((1, 3), np.int64)
    return [
        *(words[:0], words, words, words, words, np.zeros(1, np.uint32), words),
        predicate_index.Tests(np.zeros(2, np.int64), table, words),
        *(table, np.zeros((1, 3), bool), np.zeros(2, np.int64), words),
        np.zeros(1, np.uint32),
    ]
