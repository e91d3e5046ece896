"""What the clause refuses, with line and column."""

# ruff: noqa: E501

from __future__ import annotations

import pyarrow as pa
import pytest

from chronicle.errors import SqlError
from chronicle.query.pattern.compiled import InputColumns, compile_match
from chronicle.query.sql.match_clause import clause_of_text

COLUMNS = InputColumns(
    pa.schema([("t", pa.timestamp("us")), ("x", pa.float64()), ("s", pa.string())]), "t"
)
HEAD = "MATCH_RECOGNIZE (ORDER BY t\nMEASURES A.x AS y\n"


@pytest.mark.parametrize(
    ("clause", "message", "line", "column"),
    [
        (HEAD + "PATTERN (A B)\nDEFINE C AS x > 1)", "C, which is not in PATTERN", 4, 8),
        (HEAD + "PATTERN (A B)\nDEFINE B AS x > 1,\n B AS x > 2)", "defined twice", 5, 2),
        (HEAD + "PATTERN (A B) SUBSET A = (B)\nDEFINE B AS x > 1)", "name of its own", 3, 22),
        (HEAD + "PATTERN (A B) SUBSET U = (C)\nDEFINE B AS x > 1)", "not a variable of PATTERN", 3, 22),
        (HEAD + "PATTERN (A B)\nDEFINE B AS Q.x > 1)", "unknown pattern variable 'Q'", 4, 13),
        (HEAD + "PATTERN (A B)\nDEFINE B AS xx > 1)", "no column 'xx'; did you mean 'x'", 4, 13),
        (HEAD + "PATTERN (A B)\nDEFINE B AS x + 1)", "must be true or false", 4, 8),
        (HEAD + "PATTERN (A B)\nDEFINE B AS x > 'a' || A.x)", "(?i)cannot compare", 4, 8),
        (HEAD + "PATTERN (A B)\nDEFINE B AS 'z'::ENUM('z') < 'a')", "values of an ENUM are", 4, 13),
        (HEAD + "PATTERN (A B)\nDEFINE B AS x > unnest([1]))", "several columns or rows", 4, 17),
        (HEAD + "PATTERN (A B)\nDEFINE B AS FINAL LAST(x) > 1)", "FINAL cannot be used in DEFINE", 4, 13),
        (HEAD + "PATTERN (A B)\nDEFINE B AS sum(A.x + B.x) > 1)", "must use one variable", 4, 17),
        (HEAD + "PATTERN (A B)\nDEFINE B AS sum(LAST(x)) > 1)", "cannot be used inside", 4, 17),
        (HEAD + "PATTERN (A B)\nDEFINE B AS sum(sum(x)) > 1)", "aggregate inside|inside an aggregate|inside sum", 4, 17),
        (HEAD + "PATTERN (A B)\nDEFINE B AS PREV(PREV(x)) > 1)", "add the offsets", 4, 13),
        (HEAD + "PATTERN (A B)\nDEFINE B AS PREV(x, s) > 1)", "literal integer", 4, 21),
        (HEAD + "PATTERN (A B)\nDEFINE B AS LAST(1) > 1)", "must read a column", 4, 18),
        (HEAD + "PATTERN (A B)\nDEFINE B AS A.* > 1)", "only be counted", 4, 13),
        (HEAD + "PATTERN (A B)\nDEFINE B AS (SELECT 1) > 1)", "a subquery cannot be used", 4, 8),
        (HEAD + "PATTERN (A B)\nDEFINE B AS read_csv('x') > 1)", "no function 'read_csv'", 4, 13),
        (HEAD + "AFTER MATCH SKIP TO LAST C PATTERN (A B))", "C, which is no pattern variable", 3, 1),
        (HEAD + "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) EVENT SELECTION CONTIGUOUS)", "cannot be used with EVENT SELECTION", 3, 1),
        (HEAD + "ALL ROWS PER MATCH WITH UNMATCHED ROWS\nPATTERN (A {- B -}))", "cannot be used with ALL ROWS", 4, 12),
        (HEAD + "PATTERN (A [^B] C) DEFINE B AS x > 1)", "needs EVENT SELECTION", 3, 12),
        (HEAD + "PATTERN (A [^B] C) EVENT SELECTION SKIP TILL NEXT MATCH)", "needs a condition for B", 3, 12),
        (HEAD + "PATTERN (A [^B]) EVENT SELECTION SKIP TILL NEXT MATCH DEFINE B AS x > 1)", "at the end of a match needs WITHIN", 3, 12),
        (HEAD + "PATTERN ([^B] A) EVENT SELECTION SKIP TILL NEXT MATCH DEFINE B AS x > 1)", "cannot stand at the beginning", 3, 10),
        (HEAD + "PATTERN (A B) WITHIN 5)", "takes an interval", 3, 22),
        (HEAD + "PATTERN (A B) WITHIN INTERVAL '1' MONTH)", "fixed length", 3, 31),
        (HEAD + "PATTERN (A B) WITHIN INTERVAL '0.5' HOUR)", "in whole units", 3, 31),
        (HEAD + "PATTERN (A B) WITHIN INTERVAL '1 hour ago')", "not negative", 3, 31),
        (HEAD + "PATTERN (A B) EVENT SELECTION SKIP TILL\nMATCH)", "expected one of", 3, 31),
        (HEAD + "AFTER MATCH PATTERN (A))", "expected SKIP", 3, 13),
        (HEAD + "SEEK PATTERN (A))", "belongs to row patterns in windows", 3, 1),
        (HEAD + "PATTERN (A B", "expected \\)|ends too early", None, None),
        (HEAD + "PATTERN (A{2,1}))", "reversed", 3, 11),
        (HEAD + "DEFINE A AS x)", "expected PATTERN", 3, 1),
        ("MATCH_RECOGNIZE (MEASURES x PATTERN (A))", "AS and a name", 1, 29),
        ("MATCH_RECOGNIZE (MEASURES x AS x ALL ROWS PER MATCH PATTERN (A))", "column x already", 1, 27),
        ("MATCH_RECOGNIZE (PARTITION BY x + 1 MEASURES x AS y PATTERN (A))", "names of columns", 1, 31),
        ("MATCH_RECOGNIZE (PARTITION BY q MEASURES x AS y PATTERN (A))", "no column 'q'", 1, 1),
        ("MATCH_RECOGNIZE (ORDER BY x MEASURES x AS y PATTERN (A) WITHIN INTERVAL '1' HOUR)", "needs ORDER BY t", 1, 1),
        ("MATCH_RECOGNIZE (MEASURES LAST(A.x + B.x) AS y PATTERN (A B))", "must use one variable", 1, 32),
        ("MATCH_RECOGNIZE (MEASURES CLASSIFIER(Z) AS y PATTERN (A B))", "unknown pattern variable 'Z'", 1, 38),
        ("MATCH_RECOGNIZE (MEASURES RUNNING x AS y PATTERN (A B))", "did not expect|expected", None, None),
    ],
)  # fmt: skip
def test_refused_with_position(
    clause: str, message: str, line: int | None, column: int | None
) -> None:
    with pytest.raises(SqlError, match=message) as caught:
        compile_match(clause_of_text("SELECT * FROM s\n" + clause), COLUMNS)
    if line is not None:
        assert (caught.value.line, caught.value.column) == (line + 1, column)


def test_within_needs_a_time() -> None:
    clause = clause_of_text(
        "SELECT * FROM s MATCH_RECOGNIZE (MEASURES A.x AS y PATTERN (A) WITHIN INTERVAL '1' DAY)"
    )
    with pytest.raises(SqlError, match="needs a time attribute"):
        compile_match(clause, COLUMNS.arrow)
