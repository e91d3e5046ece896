"""Tiers: what is heavy, what the default tier runs, and what a change reaches."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import chronicle

from .default_tier import CASES, SMOKE
from .tiers import ROOT, distances, kind_of

TESTS = ROOT / "tests"


def functions(file: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_the_default_tier_names_what_is_there() -> None:
    for file in SMOKE | CASES:
        named = {name.partition("[")[0] for name in (*SMOKE.get(file, ()), *CASES.get(file, ()))}
        assert named - {""} <= functions(TESTS / file), file


def starting_a_process() -> None:
    subprocess.run(["true"], check=True)


class Server:
    def start(self) -> None:
        self.started = create_app


def create_app() -> None:
    """What a service is made with."""


KINDS = {
    "plain": lambda: functions(TESTS),
    "process": lambda: starting_a_process(),
    "workers": lambda: chronicle.open("store", isolation="process"),
    "service": lambda: Server().start(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_follows_from_what_the_code_reaches(
    request: pytest.FixtureRequest, kind: str
) -> None:
    item = SimpleNamespace(
        function=KINDS[kind],
        cls=None,
        session=request.session,
        iter_markers=lambda name: (),
        _fixtureinfo=SimpleNamespace(argnames=()),
    )
    assert kind_of(item) == kind  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "test", "imports"),
    [
        ("tests/test_tiers.py", "tests/test_tiers.py", 0),
        ("store/log.py", "tests/store/test_log.py", 1),
        ("tests/patience.py", "tests/server/test_wiring.py", 1),  # absolute
        ("tests/server/flights.py", "tests/server/test_small_appends.py", 1),  # relative
        ("tests/server/conftest.py", "tests/server/test_cloud_events.py", 1),
        ("docs/format.md", "tests/store/test_format_document.py", 1),  # no Python
        ("api/database.py", "tests/test_fork.py", 1),
    ],
)
def test_what_a_change_reaches(changed: str, test: str, imports: int) -> None:
    assert distances({ROOT / changed})[ROOT / test] == imports


def test_what_nothing_names_reaches_nothing() -> None:
    unnamed = ROOT / "docs" / "figures" / ("nobody" + "_knows.svg")
    assert distances({unnamed}) == {unnamed: 0}
