"""Tables 3 to 5 of Dindar et al. (DEBS 2011): what the live form keeps while it runs.

The paper's result cache are the archive rows that are kept.  It shows them at each row; here a row
is taken in when the time behind it begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.api.database import Database
from chronicle.bench import recency
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.live.recent_form import RecentForm, RecentState
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles

from ..query.recent.conftest import PRICES

FALL = """stocks MATCH_RECOGNIZE (MEASURES A.price AS init, LAST(B.price) AS low INCREMENTAL MATCH
  PATTERN (A B+) WITHIN 40 DEFINE B AS price < PREV(price)) AS l"""
TICK = """stocks MATCH_RECOGNIZE (MEASURES A.price AS init, LAST(D.price) AS high MAXIMAL MATCH
  PATTERN (A B+ C* D+) WITHIN 40 DEFINE B AS price < PREV(price),
    C AS price >= PREV(price) AND price <= A.price, D AS price > PREV(price) AND price > A.price)
  AS a"""
SQL = f"""SELECT match_start(a) AS ts, match_end(l) AS te, l.init AS li, l.low, a.init AS ai, a.high
  FROM {FALL} RECENT JOIN {TICK} WITHIN {{}}"""


@pytest.fixture
def db() -> Any:
    schema = pa.schema([("t", pa.int64()), ("price", pa.int64())])
    with Database(StoreCatalog(Store.open("mem", files=MemoryFiles()))) as found:
        found.create_stream("stocks", schema, time="t")
        yield found


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, int]]]:
    """Archive rows that were there in each step."""
    seen: list[list[tuple[int, int]]] = []
    let_go = RecentState.let_go

    def watched(self: RecentState, settled: int, needed: int) -> None:
        rows = self.archive
        seen.append(sorted(zip(rows.start.tolist(), rows.end.tolist(), strict=True)))
        let_go(self, settled, needed)

    monkeypatch.setattr(RecentState, "let_go", watched)
    return seen


def test_table_3(db: Database, cache: list[list[tuple[int, int]]]) -> None:
    db.create_live("q", SQL.format(7), idle="never")
    came: dict[int, list[tuple[int, ...]]] = {}
    said = 0
    for t, price in enumerate([*PRICES, 0]):
        db.stream("stocks").append([{"t": t, "price": price}])
        db.run_live()
        rows = db.sql(
            f"SELECT ts, te, li, low, ai, high FROM q WHERE _seq > {said} ORDER BY _seq"
        ).fetchall()
        said += len(rows)
        came[t - 1] = sorted(rows, key=lambda row: row[:2])
    kept = dict(zip(range(11 - len(cache), 11), cache, strict=True))
    one, other = (2, 4), (4, 6)
    assert [kept[t] for t in range(4, 11)] == [
        [], [one], [one], [one, other], [one, other], [one, other], [other],
    ]  # fmt: skip
    assert {t: rows for t, rows in came.items() if rows} == {
        5: [(2, 5, 7, 6, 6, 7)],
        7: [(2, 7, 11, 8, 6, 7), (4, 7, 11, 8, 7, 11)],  # the table has the second at 9
        9: [(2, 9, 8, 3, 6, 7), (4, 9, 8, 3, 7, 11)],
    }


def test_table_4(db: Database) -> None:
    """Archive first: the results of each archive row one behind the other."""
    db.stream("stocks").append([{"t": t, "price": price} for t, price in enumerate(PRICES)])
    found = db.sql(SQL.format(7).replace("SELECT", "SELECT /*+ recent(archive_first) */", 1))
    assert found.fetchall() == [
        (2, 5, 7, 6, 6, 7), (2, 7, 11, 8, 6, 7), (2, 9, 8, 3, 6, 7),
        (4, 7, 11, 8, 7, 11), (4, 9, 8, 3, 7, 11),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("distance", "entries"), [(10, 0), (50, 1), (100, 3), (200, 7), (300, 11), (1000, 39)]
)
def test_table_5(
    db: Database, monkeypatch: pytest.MonkeyPatch, distance: int, entries: int
) -> None:
    """Archive rows in the region of a live match; all are there already, but those of its step."""
    counted: list[int] = []
    around = RecentForm._around

    def watched(self: RecentForm, *arguments: Any) -> Any:
        found = around(self, *arguments)
        counted.append(len(found))
        return found

    monkeypatch.setattr(RecentForm, "_around", watched)
    prices = recency.sawtooth(1300).astype(np.int64)
    db.create_live("q", SQL.format(distance), idle="never")
    stocks = db.stream("stocks")
    for low in range(0, 1300, 50):  # up to the end of a fall, and behind it
        for begin, end in ((low, low + 4), (low + 4, low + 50)):
            ticks = np.arange(begin, end)
            stocks.append(pa.table({"t": ticks, "price": prices[begin:end]}))
            db.run_live()
    assert max(counted) == entries
