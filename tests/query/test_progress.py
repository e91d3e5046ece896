"""How far a running query is: events read, of those that it will read at most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database
from chronicle.query.contract.cancellation import WATCHED_EVENTS, Cancellation, Progress
from chronicle.store.segment import ScanMetrics

COUNT = 3 * WATCHED_EVENTS


@pytest.fixture(scope="module")
def db(tmp_path_factory: Any) -> Iterator[Database]:
    with chronicle.open(tmp_path_factory.mktemp("store")) as database:
        schema = pa.schema([("t", pa.int64()), ("x", pa.int64()), ("k", pa.string())])
        stream = database.create_stream("s", schema, time="t")
        n = np.arange(COUNT)
        stream.append(pa.table([n, n % 1000, pa.array(["a"] * COUNT)], schema))
        stream.seal()
        small = database.create_stream("small", schema, time="t")
        small.append(pa.table([n[:9], n[:9], pa.array(["a"] * 9)], schema))
        yield database


def followed(db: Database, sql: str) -> list[tuple[int, int]]:
    """What is told after each batch."""
    token = Cancellation()
    found = []
    for _ in db.sql(sql, cancellation=token).batches():
        assert token.progress.events is not None, sql
        found.append(token.progress.events)
    return found


@pytest.mark.parametrize(
    ("sql", "expected", "read"),
    [
        ("SELECT x FROM s", COUNT, COUNT),
        ("SELECT x FROM s WHERE x + 1 > 0", COUNT, COUNT),
        (f"SELECT x FROM s WHERE t < {2 * WATCHED_EVENTS}", 2 * WATCHED_EVENTS, None),
        ("SELECT k, count(*) FROM s GROUP BY k", COUNT, COUNT),
        ("SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS at PATTERN (A B) "
         "DEFINE A AS x > 998, B AS x <> A.x)", COUNT, COUNT),
        ("SELECT * FROM s MATCH_SITUATIONS (PATTERN (HIGH) DEFINE HIGH AS x % 7 > 5)",
         COUNT, COUNT),
        ("SELECT window_start, k, count(*) FROM TUMBLE(s, t, 1000) GROUP BY 1, 2", COUNT, COUNT),
    ],
)  # fmt: skip
def test_reads_are_counted_against_what_lies_ahead(
    db: Database, sql: str, expected: int, read: int | None
) -> None:
    told = followed(db, sql)
    assert {most for _, most in told} == {expected}
    counts = [done for done, _ in told]
    assert counts == sorted(counts)
    assert counts[-1] <= expected
    if read is not None:
        assert counts[-1] == read


def test_a_join_counts_both_sides(db: Database) -> None:
    sql = (
        "SELECT count(*) FROM (SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS at "
        "PATTERN (A) DEFINE A AS x = 999)) AS a JOIN s ON s.t = a.at"
    )
    assert followed(db, sql)[-1] == (2 * COUNT, 2 * COUNT)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT x FROM small",
        "SELECT 1",
        "SELECT x FROM s LIMIT 3",
        "SELECT sum(x) FROM s",
        "SELECT x FROM s WHERE t < 10",
    ],
)
def test_what_is_soon_over_tells_nothing(db: Database, sql: str) -> None:
    token = Cancellation()
    db.sql(sql, cancellation=token).arrow()
    assert token.progress.events is None


def test_never_more_than_was_expected() -> None:
    progress, counter = Progress(), ScanMetrics()
    counter.events_read = 10
    progress.expect([counter], WATCHED_EVENTS - 1)
    assert progress.events is None
    progress.expect([counter], 2 * WATCHED_EVENTS, lambda: WATCHED_EVENTS)
    assert progress.events == (0, WATCHED_EVENTS)
    counter.events_read += 5
    assert progress.events == (5, WATCHED_EVENTS)
    counter.events_read += 2 * WATCHED_EVENTS
    assert progress.events == (WATCHED_EVENTS, WATCHED_EVENTS)
