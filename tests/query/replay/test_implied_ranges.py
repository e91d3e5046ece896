"""Ranges of one variable that follow from those of another."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pytest

from chronicle.query.conditions.constants import Folder
from chronicle.query.conditions.predicates import describe
from chronicle.query.replay.symbols import outline

from ...rounds import rounds
from .across_cases import SCHEMA, answers, compiled, events, stream_of


def terms(pattern: str, defined: str) -> dict[str, list[str]]:
    folder = Folder({}, dt.datetime.now(dt.timezone.utc))
    found = outline(compiled(pattern, defined), SCHEMA, folder)
    return {
        symbol.name: [
            " or ".join(str(describe(atom, SCHEMA)) for atom in term.atoms) for term in symbol.terms
        ]
        for symbol in found.symbols
    }


@pytest.mark.parametrize(
    ("defined", "expected"),
    [
        ("A AS x > 5, B AS x > A.x", "x > 6"),
        ("A AS x > 5, B AS A.x <= x", "x >= 6"),
        ("A AS x BETWEEN 2 AND 9, B AS x < A.x", "x < 9"),
        ("A AS x BETWEEN 2 AND 9, B AS x = A.x", "x >= 2 and x <= 9"),
        ("A AS k IN ('u', 'v'), B AS k = A.k", "k = 'u' or k = 'v'"),
        ("A AS x = 3, B AS x > A.x AND x < 8", "x > 3 and x <= 7"),
        ("A AS x = 3, C AS x > A.x, B AS x > C.x", "x > 3"),
        ("A AS x = 3, B AS x = FIRST(A.x)", "x = 3"),
        ("A AS x > 5, B AS x < A.x", None),
        ("A AS x > 5, B AS x > PREV(A.x)", None),
        ("A AS x > 5, B AS x > A.x OR g = 1", None),
        ("A AS x > 5, B AS g > A.x", None),  # another type
        ("A AS g > 5, B AS x > A.x", None),
    ],
)
def test_what_follows(defined: str, expected: str | None) -> None:
    found = terms("PATTERN (A C B)", defined)["B"]
    assert [text.lower() for text in found] == ([] if expected is None else [expected])


def test_rows_are_those_of_a_replay(tmp_path: Path) -> None:
    saved = 0
    for seed in range(rounds(3, 30, 2000)):
        r = random.Random(seed)
        late = events(r, 4, 2, 300) if r.random() < 0.4 else None
        made = stream_of(tmp_path / str(seed), events(r, 1500, 3, 3), late)
        store, snapshot, indexes = made
        for _ in range(4):
            first = r.choice(["x > 38", "x < 2", "x BETWEEN 5 AND 6", "x IN (1, 30)"])
            link = r.choice(["=", ">", ">=", "<", "<="])
            defined: dict[str, Any] = {
                "A": first, "B": f"x {link} A.x", "C": r.choice(["g = 1", f"A.x {link} x"]),
            }  # fmt: skip
            pattern = r.choice(["(A B)", "(A C B)", "(A C* B)", "(A+ B)", "(B A)", "(C? A B)"])
            more = r.choice(["", " EVENT SELECTION SKIP TILL NEXT MATCH"])
            names = [n for n in defined if n in pattern]
            clause = compiled(
                f"PATTERN {pattern} WITHIN {r.choice([4, 30])}{more}",
                ", ".join(f"{n} AS {defined[n]}" for n in names),
            )
            expected, _ = answers(snapshot, clause, indexes, "replay")
            found, plan = answers(snapshot, clause, indexes, "all")
            assert found == expected, (seed, pattern, defined)
            saved += any("B:" in text for text in plan.chosen)
        indexes.close()
        store.close()
    assert saved
