"""What comes out of the executor is told as what it was, whether or not the query has to end."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import duckdb
import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import QueryTimeout, ResourceLimit, SqlError
from chronicle.query.contract.cancellation import QueryControl
from chronicle.query.relational.executor import Executor
from chronicle.query.relational.interface import RelationalQuery, evaluate, evaluated_by
from chronicle.query.run.context import LeafOperator
from chronicle.tests.patience import wait_until


@pytest.fixture
def executor() -> Iterator[Executor]:
    made = Executor(1 << 28, 1)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SystemExit(3), SystemExit),
        (GeneratorExit(), GeneratorExit),
        (KeyError("a fault of ours"), KeyError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (MemoryError(), ResourceLimit),
        (duckdb.BinderException("no such column"), SqlError),
        *((duckdb.ConversionException(f"cannot convert '{words}'"), SqlError) for words in (
            "KeyboardInterrupt", "INTERRUPT Error", "database has been invalidated")),
        (duckdb.InvalidInputException("Invalid Input Error: reading the schema of the object "
                                      "registered as 'e' failed: KeyboardInterrupt: "),
         KeyboardInterrupt),
        (duckdb.InterruptException("INTERRUPT Error: Interrupted!"), QueryTimeout),
    ],
)  # fmt: skip
def test_an_error_after_the_time_limit(
    executor: Executor, error: BaseException, told: type[BaseException]
) -> None:
    query = RelationalQuery("SELECT 1", control=QueryControl(timeout=1e-9))
    wait_until(lambda: query.control.stopped)
    with pytest.raises(told) as raised, executor._admitted(query):
        raise error
    assert raised.type is told


def test_a_wrong_statement_is_told_after_the_time_limit(executor: Executor) -> None:
    query = RelationalQuery('SELECT "nothing"', control=QueryControl(timeout=1e-9))
    wait_until(lambda: query.control.stopped)
    with pytest.raises(SqlError, match="nothing"):
        executor.columns(query)


def test_expressions_over_many_rows_end_at_the_time_limit(executor: Executor) -> None:
    rows = pa.table({"x": range(5_000)})
    with evaluated_by(executor, QueryControl(timeout=0.1)), pytest.raises(QueryTimeout):
        evaluate('SELECT count(*) FROM rows AS "a", rows AS "b", rows AS "c"', rows=rows)


def test_long_texts_that_repeat_are_told() -> None:
    overflow = pa.ArrowInvalid("Take operation overflowed binary array capacity")
    with pytest.raises(ResourceLimit, match="long texts that repeat"):
        list(LeafOperator.batches(Mock(_results=Mock(side_effect=overflow)), ["l"]))


def test_conditions_of_a_clause_ask_whether_the_query_has_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()
    check = QueryControl.check

    def counted(control: QueryControl) -> None:
        caller = sys._getframe(1).f_back  # who calls checkpoint
        if caller is not None:
            asked[caller.f_code.co_name] += 1
        check(control)

    monkeypatch.setattr(QueryControl, "check", counted)
    conditions = " AND ".join(f"x > 1 + {n}" for n in range(50))
    with chronicle.open(tmp_path / "s") as db:
        db.sql("CREATE STREAM s (t BIGINT, x DOUBLE) TIMESTAMP BY t")
        db.sql(
            "SELECT count(*) FROM s MATCH_RECOGNIZE (ORDER BY t PATTERN (A) "
            f"DEFINE A AS {conditions})"
        ).fetchall()
    assert asked["_transform"] >= 50
    assert asked["add"] >= 50
