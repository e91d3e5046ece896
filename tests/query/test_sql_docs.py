"""docs/sql.md is true: its examples run in order and its function lists are the gate's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import chronicle
from chronicle.query.sql import forms, gate
from chronicle.query.statements import _OPTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def statements() -> list[str]:
    return [s.strip() for block in blocks("sql") for s in block.split(";\n") if s.strip()]


def test_the_examples_give_what_the_page_is_about(tmp_path):
    texts = statements()
    assert len(texts) > 20
    with chronicle.open(tmp_path) as db:
        for text in texts:
            rows = db.sql(text).fetchall()
            if text.startswith(("SELECT", "WITH", "FROM", "SHOW STREAMS", "DESCRIBE", "EXPLAIN")):
                assert rows, text
            if text.startswith("SELECT icao24, max"):
                assert rows[0] == ("a1", 1500.0)
            if text.startswith("EXPLAIN ANALYZE"):
                assert rows[0][0] == "TreeAggregate"


@pytest.mark.parametrize(
    ("position", "names"),
    [
        (0, forms.AGGREGATES),
        (1, forms.WINDOWS),
        (2, forms.SCALARS),
        (3, forms.SIZED_ONLY | forms.FORMATS),
        (4, forms.SERIES),
    ],
)
def test_the_function_lists_are_complete(position, names):
    assert set(blocks("functions")[position].split()) == names


def test_the_limits_and_options_are_those_of_the_code():
    assert f"literal sizes up to {gate.LITERAL_SIZE_MAX}" in PAGE
    assert f"at most {gate.SERIES_MAX} values" in PAGE
    for option in _OPTIONS:
        assert f"`{option}`" in PAGE
