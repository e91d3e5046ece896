"""MAXIMAL MATCH and INCREMENTAL MATCH: the longest of contiguous matches, against the oracle."""

from __future__ import annotations

import random
import sys
from typing import Any

import pyarrow as pa
import pytest

from chronicle.core.native import FUNCTIONS
from chronicle.errors import SqlError
from chronicle.query.pattern import match_stream, selection
from chronicle.query.sql.match_clause import clause_of_text

from ... import oracles_recent as oracle
from ..pattern.test_match_advancing import advances, by_steps
from ..pattern.test_match_differential import (
    SCHEMA,
    compiled_clause,
    definitions,
    partitions,
    random_pattern,
    random_rows,
    run,
    text_of,
    used,
)

CHOSEN = {"MAXIMAL": oracle.maximal, "INCREMENTAL": oracle.incremental}


@pytest.fixture(autouse=True, scope="module")
def small_buffers() -> Any:
    """Search after every batch, so that undecided matches cross buffers."""
    before = match_stream.ROWS_FIRST
    match_stream.ROWS_FIRST = 1
    yield
    match_stream.ROWS_FIRST = before


def kernels_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the kernels of modules that are loaded run as the functions that were written."""
    written = {}
    for name, function in FUNCTIONS.items():
        home = sys.modules[f"chronicle.{name.rpartition('.')[0]}"]
        written[id(getattr(home, function.__name__))] = function
    for module in [m for n, m in sys.modules.items() if n.startswith("chronicle.")]:
        for name, value in list(vars(module).items()):
            if id(value) in written:
                monkeypatch.setattr(module, name, written[id(value)])


def compiled(text: str) -> Any:
    return compiled_clause(f"MATCH_RECOGNIZE ({text})")


@pytest.mark.parametrize("mode", list(CHOSEN))
@pytest.mark.parametrize("seed", range(25))
def test_modes_against_the_oracle(seed: int, mode: str) -> None:
    r = random.Random(seed)
    names = ["A", "B", "C"][: r.randint(2, 3)]
    pattern = random_pattern(r, names, r.randint(1, 2), extras=False)
    # what can go on past a match, and tails that need not be there, are where the modes differ
    pattern = r.choice([pattern, ("cat", pattern, ("rep", ("var", "A"), 0, None, True))])
    names = sorted(used(pattern))
    texts, functions = definitions(r, names, None, 0.3)
    window = r.choice([None, None, 2, 5])
    keys = r.choice(["p", "pq"])
    number = r.choice(["MATCH_NUMBER()", "1"])  # a number has searches go another way
    clause = compiled(
        ("PARTITION BY k " if len(keys) > 1 else "")
        + f"MEASURES FIRST(id) AS a, LAST(id) AS b, count(*) AS n, {number} AS number "
        + f"ONE ROW PER MATCH {mode} MATCH PATTERN ({text_of(pattern)})"
        + (f" WITHIN {window}" if window is not None else "")
        + (" DEFINE " + ", ".join(texts) if texts else "")
    )
    for run_number in range(4):
        rows = random_rows(r, r.randint(0, 12), keys)
        expected = []
        for group in partitions(rows):
            found = CHOSEN[mode](oracle.contiguous(group, pattern, functions, window))
            expected += [
                (group[first]["id"], group[last]["id"], last - first + 1, i if number != "1" else 1)
                for i, (first, last, _) in enumerate(found, 1)
            ]
        shown = f"{text_of(pattern)} {texts} {window}\n{rows}"
        table = run(clause, rows, r.choice([1, 3, 100]))
        assert answers(table) == sorted(expected), shown
        if run_number < 2 and number == "1" and advances(clause):
            events = pa.Table.from_pylist(rows, schema=SCHEMA.arrow)
            said = pa.concat_tables(by_steps(r, clause, events))
            assert sorted(answers(said)) == sorted(expected), shown


def answers(table: pa.Table) -> list[tuple[int, ...]]:
    return [tuple(row[c] for c in ("a", "b", "n", "number")) for row in table.to_pylist()]


def ends(text: str, prices: list[int]) -> list[tuple[int, int]]:
    rows = [{"t": t, "id": t, "k": "", "x": 0.0, "y": y, "s": ""} for t, y in enumerate(prices)]
    found = run(compiled(f"MEASURES FIRST(t) AS a, LAST(t) AS b ONE ROW PER MATCH {text}"), rows, 3)
    return [(row["a"], row["b"]) for row in found.to_pylist()]


def test_a_greedy_preference_is_not_the_longest() -> None:
    pattern = "PATTERN (A B? (B C)?) DEFINE A AS y = 1, B AS y = 2, C AS y = 3"
    assert ends(f"AFTER MATCH SKIP TO NEXT ROW {pattern}", [1, 2, 3]) == [(0, 1)]
    assert ends(f"MAXIMAL MATCH {pattern}", [1, 2, 3]) == [(0, 2)]


def test_incremental_is_not_skip_to_next_row_reversed() -> None:
    fall = "PATTERN (A B+) DEFINE B AS y < PREV(y)"
    assert ends(f"INCREMENTAL MATCH {fall}", [10, 8, 6]) == [(0, 1), (0, 2)]
    assert ends(f"AFTER MATCH SKIP TO NEXT ROW {fall}", [10, 8, 6]) == [(0, 2), (1, 2)]
    assert ends(f"AFTER MATCH SKIP TO NEXT ROW MAXIMAL MATCH {fall}", [10, 8, 6]) == [
        (0, 2),
        (1, 2),
    ]


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("AFTER MATCH SKIP PAST LAST ROW MAXIMAL MATCH PATTERN (A)", "SKIP TO NEXT ROW", 34),
        ("INCREMENTAL MATCH PATTERN (A) EVENT SELECTION CONTIGUOUS", "EVENT SELECTION", 34),
        ("MAXIMAL PATTERN (A)", "expected PATTERN", 34),
    ],
)
def test_what_a_mode_cannot_stand_with(text: str, message: str, column: int) -> None:
    with pytest.raises(SqlError, match=message) as caught:
        clause_of_text(f"SELECT * FROM s MATCH_RECOGNIZE ({text})")
    assert (caught.value.line, caught.value.column) == (1, column)


def test_the_number_of_a_match_is_the_same_for_all_of_its_rows() -> None:
    """The longest match took a number for each shorter one that it replaced."""
    clause = compiled(
        "MEASURES count(*) AS n, MATCH_NUMBER() AS number MAXIMAL MATCH PATTERN (A B*) "
        "DEFINE B AS y > MATCH_NUMBER()"
    )
    rows = [{"t": t, "id": t, "k": "p", "x": 0.0, "y": 2, "s": ""} for t in range(5)]
    found = run(clause, rows, 5).to_pylist()
    assert [tuple(row.values()) for row in found] == [(5, 1), (1, 2), (1, 3), (1, 4), (1, 5)]


def test_only_the_longest_match_of_a_first_row_is_put_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each longer set was put out in the place of the one before: the cube of the length."""
    kernels_as_python(monkeypatch)
    put_out, lengths = selection._put_out, []

    def counted(*arguments: Any) -> Any:
        lengths.append(int(arguments[6]))
        return put_out(*arguments)

    monkeypatch.setattr(selection, "_put_out", counted)
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 1 << 10)
    clause = compiled("MEASURES A.x AS a MAXIMAL MATCH PATTERN (A B+) DEFINE B AS x > A.x")
    rows = [{"t": t, "id": t, "k": "p", "x": t, "y": 2, "s": ""} for t in range(50)]
    assert len(run(clause, rows, 50)) == 49
    assert lengths == [*range(50, 1, -1)]
