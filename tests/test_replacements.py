"""A range that is replaced, as indexes, live queries and followers see it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import InvalidArgument
from chronicle.ingest.sinks import StoreSink

from .test_deletes import PATTERN, SCHEMA, SMALL, Event, made, table


def filled(path: Path) -> Any:
    db = chronicle.open(path)
    stream = db.create_stream("s", SCHEMA, time="t", options=SMALL)
    stream.append(table(made(random.Random(1), 2000, 0)))
    return db


def load(db: Any, events: list[Event], over: tuple[int, int]) -> None:
    """As Spark does it."""
    sink = StoreSink(db.path, "s", catalog=catalog_of(db))
    job = sink.new_job()
    sink.prepare(job)
    sink.commit(job.name, sink.stage(job, 0, iter(table(events).to_batches())), over=over)


def test_indexes_know_what_came_and_not_what_went(tmp_path: Path) -> None:
    with filled(tmp_path / "store") as db:
        stream = db.stream("s")
        stream.create_index("x")
        stream.create_index("k")
        new = made(random.Random(2), 600, 300)
        load(db, new, (250, 650))
        with pytest.raises(InvalidArgument, match="has to end after its start"):
            load(db, [], (5, 5))
        query = f"SELECT /*+ strategy(index) */ * FROM s {PATTERN}"
        for _ in range(2):
            assert db.sql(query).fetchall() == db.sql(query.replace("index", "replay")).fetchall()
            inside = db.sql("SELECT t, k, x, y FROM s WHERE t >= 250 AND t < 650").fetchall()
            assert inside == new
            counted = db.sql("SELECT count(*) FROM s WHERE x > 70 AND k = 'c'").fetchall()
            rows = db.sql("SELECT x, k FROM s").fetchall()
            assert counted == [(sum(1 for x, k in rows if x > 70 and k == "c"),)]
            catalog_of(db).indexes_of("s").catch_up(stream.snapshot().state)
        assert db.check().ok
