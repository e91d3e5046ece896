"""Small stores for recency joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.query.plan import recent_plan
from chronicle.query.recent.narrowing import Choice

Store = Callable[..., Any]

PRICES = [10.0, 6.0, 6.0, 5.0, 7.0, 6.0, 11.0, 8.0, 8.0, 3.0, 3.0]
"""Of the paper's Table 1, one a tick from 0 on."""

LIVE = """stocks MATCH_RECOGNIZE (PARTITION BY symbol
  MEASURES A.price AS init, LAST(B.price) AS low
  ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW INCREMENTAL MATCH
  PATTERN (A B+) DEFINE B AS price < PREV(price)) AS l"""

ARCHIVE = """stocks MATCH_RECOGNIZE (PARTITION BY symbol
  MEASURES A.price AS init, LAST(D.price) AS high
  ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW MAXIMAL MATCH
  PATTERN (A B+ C* D+) DEFINE B AS price < PREV(price),
    C AS price >= PREV(price) AND price <= A.price,
    D AS price > PREV(price) AND price > A.price) AS a"""


@contextmanager
def in_order(order: str) -> Iterator[None]:
    """Have recency joins run in an order, as a hint does; their text is prepared once for all."""
    choose, asked = recent_plan.choose, []

    def chosen(*_: object) -> Choice:
        asked.append(order)
        return Choice(order, "asked for")

    recent_plan.choose = chosen
    try:
        yield
    finally:
        recent_plan.choose = choose
    assert asked


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    """An empty store."""
    with chronicle.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture(scope="module")
def table1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The events of Table 1; only read."""
    db = chronicle.open(tmp_path_factory.mktemp("table1") / "store")
    schema = pa.schema([("t", pa.int64()), ("symbol", pa.string()), ("price", pa.float64())])
    stream = db.create_stream("stocks", schema, time="t")
    ticks = list(range(len(PRICES)))
    stream.append(pa.table({"t": ticks, "symbol": ["X"] * len(PRICES), "price": PRICES}))
    yield db
    db.close()
