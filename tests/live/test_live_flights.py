"""A live landing pattern over a day of real flights, in any order, event by event."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "opensky-switzerland.json.gz"
LANDINGS = """
SELECT * FROM flights MATCH_RECOGNIZE (
  PARTITION BY icao24 ORDER BY timestamp
  MEASURES LAST(CRUISE.timestamp) AS top, CRUISE.altitude AS top_altitude,
           GROUND.timestamp AS down, GROUND.altitude AS down_altitude,
           count(DESCENT.*) + 2 AS events, MATCH_ID() AS id
  PATTERN (CRUISE DESCENT+ GROUND) WITHIN INTERVAL '15' MINUTE
  DEFINE CRUISE AS altitude > 36000,
         DESCENT AS altitude <= PREV(altitude),
         GROUND AS altitude <= PREV(altitude) AND altitude < 32000)
"""


def flights() -> pa.Table:
    """As docs/landing.py loads them."""
    spec = importlib.util.spec_from_file_location("landing", ROOT / "docs" / "landing.py")
    assert spec is not None
    assert spec.loader is not None
    landing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(landing)
    return landing.load(str(DATA))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("alone", [5_000, 1_000_000], ids=["some_alone", "each_alone"])
@pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not there")
def test_shuffled_flights_end_with_the_landings(tmp_path: Path, alone: int) -> None:
    """So many events each in a commit of its own, the others in commits of many."""
    rng = random.Random(7)
    table = flights()
    order = list(range(table.num_rows))
    rng.shuffle(order)
    schema = pa.schema(
        [("timestamp", pa.timestamp("ms")), ("icao24", pa.string()), ("altitude", pa.float64())]
    )
    events = table.select(schema.names).take(pa.array(order)).cast(schema).combine_chunks()
    with chronicle.open(tmp_path) as db:
        stream = db.create_stream("flights", schema, time="timestamp")
        live = db.create_live("landings", LANDINGS, idle="never", options={"durability": "none"})
        steps = set(rng.sample(range(events.num_rows), 6)) | {1000, 4000}
        (batch,) = events.to_batches()
        number = 0
        while number < batch.num_rows:
            begin, number = number, number + (1 if number < alone else 500)
            stream.append(batch.slice(begin, number - begin), durability="none")
            if not steps.isdisjoint(range(begin, number)):
                db.run_live()
                assert live.status()["error"] is None
        end = pa.scalar(1533333333000, pa.timestamp("ms"))
        stream.append([{"timestamp": end.as_py(), "icao24": "none", "altitude": None}])
        db.run_live()
        net = live.net()
        wanted = db.sql(LANDINGS).arrow().to_pylist()
        assert len(wanted) == 8
        assert live.status()["retractions"] + live.status()["rows"] >= 8

        def known(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
            return sorted(tuple(row.values()) for row in rows)

        assert known(net.select(list(wanted[0])).to_pylist()) == known(wanted)
        assert net.column("_id").to_pylist() == net.column("id").to_pylist()
        assert live.verify() == 0
