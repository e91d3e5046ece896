"""The hint of an error about an unknown name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chronicle.core import suggestion
from chronicle.core.suggestion import did_you_mean

KNOWN = ["Altitude", "speed", "SPEED"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("altitud", "; did you mean 'Altitude'?"), ("Sped", "; did you mean 'speed'?"), ("xyz", "")],
)
def test_case_does_not_count(name: str, hint: str) -> None:
    assert did_you_mean(name, KNOWN) == hint


def test_sql_shows_names_as_they_are_typed() -> None:
    assert did_you_mean("altitud", KNOWN, quoted=False) == "; did you mean Altitude?"
    hint = did_you_mean("altitud", KNOWN, quoted=False, prefix="f.")
    assert hint == "; did you mean f.Altitude?"


def test_nothing_else_looks_for_near_names() -> None:
    root = Path(suggestion.__file__).parent.parent
    packages = [path for path in root.iterdir() if (path / "__init__.py").exists()]
    files = [*root.glob("*.py"), *(file for package in packages for file in package.rglob("*.py"))]
    used = re.compile(r"^\s*(?:import|from) difflib\b", re.M)
    users = {file.name for file in files if used.search(file.read_text(encoding="utf-8"))}
    assert users == {"suggestion.py"}


def test_what_was_given_is_never_recommended():
    """An error said: no column 'count'; did you mean 'count'?"""
    assert did_you_mean("count", ["count"]) == ""
    assert did_you_mean("count", ["count", "counts"]) == "; did you mean 'counts'?"
    assert did_you_mean("count", ["count", "Count"]) == "; did you mean 'Count'?"
