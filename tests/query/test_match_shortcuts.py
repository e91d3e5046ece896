"""Plain comparisons and columns take a short way through the binder: to the same result."""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from chronicle.errors import ChronicleError, SqlError
from chronicle.query.pattern.binding import Binder
from chronicle.query.pattern.compiled import compile_match
from chronicle.query.sql import match_clause

from ..new_stores import timed

SCHEMA = timed(
    **{
        "x": pa.float64(),
        "Date": pa.int32(),
        "first": pa.float32(),
        "b c": pa.int64(),
        "s": pa.string(),
    }
)
NAMES = (
    "x", "X", '"x"', '"X"', "t", "date", "first", '"b c"', "s", "missing", "A.x", "B.x", "case",
    "any", "if", "map", "next", "null", "true", "current_date", "classifier", "running", "$p", "1",
)  # fmt: skip
SHAPES = (
    "{} < 1", "{} <= 1.5", "{} > 1e5", "{} >= 0", "{} = 3", "{} == 3", "{} <> 3", "{} != 4",
    "{} BETWEEN 1 AND 2", "{} between .5 and 1e3", "{} NOT BETWEEN 1 AND 2", "{} < -1",
    "{} BETWEEN SYMMETRIC 2 AND 1", "{} BETWEEN 1 AND 2 AND x > 3", "{} < 1 OR x < 3",
    "{} < 1 + 2", "{} < 1 -- note\n", "{} /* note */ < 1", "{} < 1_000", "{} < 5.", "{} < '1'",
    "{} < 1::INT", "{} BETWEEN 1", "{} <", "{}", "({} < 1)", "{} < 99999999999999999999999",
)  # fmt: skip


def told(node: Any) -> Any:
    """A tree with everything that it says, positions too."""
    if not hasattr(node, "args"):
        return [told(item) for item in node] if isinstance(node, list) else node
    kept = {key: told(value) for key, value in node.args.items() if value not in (None, False)}
    return type(node).__name__, kept, dict(node.meta)


def outcome(condition: str, measure: str = "A.t") -> Any:
    """What parser and binder make of a condition of A and of a measure."""
    text = (
        f"SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES {measure} AS a PATTERN (A B) "
        f"WITHIN 10 DEFINE A AS {condition}, B AS x < 5)"
    )
    found: list[Any] = []
    try:
        clause = match_clause.clause_of_text(text)
        found += [(d.variable, d.at, told(d.condition)) for d in clause.definitions]
        compiled = compile_match(clause, SCHEMA)
    except ChronicleError as error:
        return [*found, type(error).__name__, str(error)]
    bounds = [*compiled.definitions.values(), *compiled.measures]
    found += [(told(bound.scalar), bound.leaves, bound.at) for bound in bounds]
    return [*found, compiled.describe(), compiled.input_columns]


MEASURES = (
    "A.x", "a.X", '"A".x', '"a".x', 'A."x"', 'A."X"', "U.x", "C.x", "A.missing", "A.b", 'A."b c"',
    "s.x", "A.s.x", "B.date", "A.first", "x", "A.x > 1", "B.x BETWEEN 1 AND 2", "A.x > 1e99",
    "A.x = 99999999999999999999999", "A.*", "(A.x)", "A.$p",
)  # fmt: skip


def test_the_short_way_leads_where_the_long_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name in a few shapes, every shape of a few names, and measures."""
    conditions = {
        shape.format(name)
        for name, shape in product(NAMES, SHAPES)
        if name in ("X", "A.x", "first") or shape in ("{} < 1", "{} BETWEEN 1 AND 2", "{}")
    }
    asked = [*((condition, "A.t") for condition in conditions), *(("x > 1", m) for m in MEASURES)]
    short = {each: outcome(*each) for each in sorted(asked)}
    monkeypatch.setattr(Binder, "_simple", lambda self, node, at: None)
    for each, found in short.items():
        assert found == outcome(*each), each


def test_the_short_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    bind = Binder._simple

    def bound(self: Binder, node: Any, at: int) -> Any:
        found = bind(self, node, at)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(Binder, "_simple", bound)
    outcome("x BETWEEN 1 AND 2")
    assert taken == [True, True, True]  # two conditions, and the measure


def test_a_statement_that_ends_anywhere_is_refused_as_one() -> None:
    """Tokens that are not there are not looked at, wherever the text ends."""
    text = (
        "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY s ORDER BY t MEASURES A.t AS a, "
        "LAST(B.x) AS b ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A B{1,3} C?) "
        "WITHIN 10 SUBSET u = (A, B) DEFINE A AS x BETWEEN 1 AND 2, B AS x < 5, C AS NOT x >= 3)"
    )
    match_clause.clause_of_text(text)
    for end in range(text.index("(") + 1, len(text)):
        with pytest.raises(SqlError):
            match_clause.clause_of_text(text[:end])
