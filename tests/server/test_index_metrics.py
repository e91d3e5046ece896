"""Gauges of secondary indexes: what they say, and to whom."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.server import create_token

SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.float64())])


def events(count: int, first: int = 0) -> pa.Table:
    return pa.table({"t": range(first, first + count), "x": [0.5] * count}, schema=SCHEMA)


def gauges(text: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in text.splitlines())
    return {key: float(value) for key, _, value in lines if key.startswith("chronicle_index_")}


def test_metrics_of_indexes(tmp_path: Path, serve_app: Callable[..., Any]) -> None:
    """They agree with the indexes, and are for those who may read the stream."""
    with chronicle.open(tmp_path / "store") as database:
        api = serve_app(database, public_metrics=True)
        flights = database.create_stream("flights", SCHEMA, "t")
        flights.append(events(20_000))
        flights.seal()
        flights.append(events(100, first=20_000))  # the tail, which no index has
        other = database.create_stream("other", SCHEMA, "t")
        assert "chronicle_index" not in api.get("/metrics").text
        flights.create_index("x")
        other.create_index("x")
        found = gauges(api.get("/metrics").text)
        assert len(found) == 10
        labels = '{attribute="x",stream="flights"}'
        catalogue = catalog_of(database).indexes_of("flights").catalogue()
        runs = [run for listed in catalogue.runs.values() for run in listed]
        inside = sum(view.events for view in flights.snapshot().state.segments)
        assert inside == 20_000
        assert found[f"chronicle_index_runs{labels}"] == len(runs) > 0
        assert found[f"chronicle_index_bytes{labels}"] == sum(run.size for run in runs) > 0
        assert found[f"chronicle_index_covered{labels}"] == pytest.approx(20_000 / 20_100)
        assert found[f"chronicle_index_lag_events{labels}"] == 0
        catalog_of(database).indexes_of("flights").rebuild()  # as before the first run was built
        behind = gauges(api.get("/metrics").text)
        assert behind[f"chronicle_index_lag_events{labels}"] == inside
        assert behind[f"chronicle_index_covered{labels}"] == 0
        _, secret = create_token(tmp_path / "store", "narrow", ["read"], ["oth*"])
        _, writing = create_token(tmp_path / "store", "writing", ["write"])
        narrow = api.get("/metrics", headers={"authorization": f"Bearer {secret}"}).text
        assert len(gauges(narrow)) == 5
        assert "flights" not in narrow
        for headers in ({}, {"authorization": f"Bearer {writing}"}):
            assert gauges(api.get("/metrics", headers=headers).text) == {}
