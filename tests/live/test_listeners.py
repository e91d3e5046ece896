"""Whoever listens to a stream and goes away is forgotten: followers, live queries, webhooks."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.catalog.streams import handle_of
from chronicle.tests.patience import PATIENCE_S

SCHEMA = pa.schema([pa.field("t", pa.int64(), False), pa.field("n", pa.int64())])
HIGH = "SELECT t, n FROM s WHERE n > 2"
SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"


@pytest.fixture
def database(tmp_path: Path) -> Any:
    with chronicle.open(tmp_path / "store") as opened:
        opened.create_stream("s", SCHEMA, time="t").append([{"t": t, "n": t} for t in range(9)])
        yield opened


def listeners(database: Any, stream: str) -> int:
    return len(handle_of(database.stream(stream)).commits.listeners)


def test_followers_that_stop_are_forgotten(database: Any) -> None:
    live = database.create_live("high", HIGH, idle="never")
    database.run_live()
    before = listeners(database, "high")
    for _ in range(20):
        for batch in live.rows(follow=True):  # and asks no more
            assert batch.num_rows
            break
    kept = [live.rows(follow=True) for _ in range(3)]
    assert [next(each).num_rows for each in kept] == [5, 5, 5]
    assert listeners(database, "high") == before + 3
    kept.pop().close()
    assert listeners(database, "high") == before + 2
    kept.clear()
    gc.collect()
    assert listeners(database, "high") == before


def test_live_queries_that_are_dropped_are_forgotten(database: Any) -> None:
    before = listeners(database, "s")
    for _ in range(3):
        names = [f"q{i}" for i in range(4)]
        for name in names:
            database.create_live(name, HIGH)
        assert listeners(database, "s") == before + 1
        for name in names:
            assert listeners(database, "s") == before + 1
            database.live(name).drop()
        assert listeners(database, "s") == before


def test_webhooks_that_are_dropped_are_forgotten(database: Any) -> None:
    hook = {"webhook": "https://example.org/alerts", "webhook_secret": SECRET}
    for name in ("a", "b"):
        database.create_live(name, HIGH, into="alerts", options=hook)
    assert listeners(database, "alerts") == 1
    database.live("a").drop()
    assert listeners(database, "alerts") == 1
    database.live("b").drop(keep_results=True)
    assert listeners(database, "alerts") == 0


@pytest.mark.parametrize("into", [None, "shared"])
def test_a_follower_ends_with_its_live_query(database: Any, into: str | None) -> None:
    live = database.create_live("high", HIGH, into=into, idle="never")
    other = database.create_live("other", HIGH, into=into, idle="never") if into else None
    database.run_live()
    seen: list[int] = []

    def follow() -> None:
        for batch in live.rows(follow=True):
            seen.extend(batch.column("_seq").to_pylist())
            told.set()

    told = threading.Event()
    follower = threading.Thread(target=follow)
    follower.start()
    assert told.wait(PATIENCE_S)
    live.drop()
    follower.join(PATIENCE_S)
    assert not follower.is_alive()
    assert len(seen) == (10 if into else 5)  # of a shared sink, that they were taken back, too
    if other is not None:
        assert other.verify() == 0
