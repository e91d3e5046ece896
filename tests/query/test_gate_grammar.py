"""Random statements of the dialect and twisted ones: no traceback, no change, nothing ends."""

from __future__ import annotations

import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import ChronicleError
from chronicle.tests.fuzz.grammar import Grammar


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    with chronicle.open(tmp_path_factory.mktemp("store")) as writer:
        writer.sql(
            "CREATE STREAM s (t BIGINT, k VARCHAR, x DOUBLE, d DECIMAL(10, 2), at TIMESTAMP, "
            "flag BOOLEAN, raw BLOB) TIMESTAMP BY t"
        )
        writer.sql(
            "INSERT INTO s SELECT i, 'a', i, i, TIMESTAMP '2026-01-01', i = 1, encode('r') "
            "FROM range(3) r(i)"
        )
        yield writer


@pytest.mark.parametrize("seed", range(2))
def test_random_statements_end_in_answers_or_in_our_errors(database, seed):
    grammar, said = Grammar(seed), []
    for _ in range(60):
        sql = grammar.statement()
        try:
            catalog_of(database).engine.access(sql)
            database.sql(sql, timeout=10, read_only=True).fetchall()
        except ChronicleError as error:
            said.append((str(error), sql))
    assert not [pair for pair in said if "Stack Trace" in pair[0]]
    assert not [pair for pair in said if "the executor" in pair[0]], "the gate must refuse it"
    assert database.sql("SELECT upper('a') FROM s LIMIT 1").fetchall() == [("A",)]
    assert database.streams() == ["s"]
    assert database.stream("s").count == 3
