"""docs/recency.md is true: its examples give what the page says."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

import chronicle

from .conftest import PRICES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "recency.md").read_text()
FLIGHTS = ROOT.parent / "shared" / "data" / "opensky-switzerland.json.gz"
STATEMENTS = [text.rstrip().rstrip(";") for text in re.findall(r"```sql\n(.*?)```", PAGE, re.S)]


def test_the_papers_query(tmp_path: Path) -> None:
    with chronicle.open(tmp_path) as db:
        seconds = pa.array(range(len(PRICES)), pa.int64()).cast(pa.timestamp("s"))
        table = pa.table({"t": seconds, "symbol": ["X"] * len(PRICES), "price": PRICES})
        db.create_stream("stocks", table.schema, time="t").append(table)
        found = db.sql(STATEMENTS[0]).fetchall()
        db.sql(STATEMENTS[2])
        db.run_live()
        net = db.sql("SELECT symbol, init, low, tick, high FROM NET(falls_after_ticks)").fetchall()
    assert sorted(net) == sorted(found)
    assert found == [
        ("X", 7.0, 6.0, 6.0, 7.0), ("X", 11.0, 8.0, 6.0, 7.0), ("X", 8.0, 3.0, 6.0, 7.0),
        ("X", 11.0, 8.0, 7.0, 11.0), ("X", 8.0, 3.0, 7.0, 11.0),
    ]  # fmt: skip


def test_descents_that_follow_one_another(tmp_path: Path) -> None:
    if not FLIGHTS.exists():
        pytest.skip("the flights are not here")
    table = pa.Table.from_pylist(json.loads(gzip.decompress(FLIGHTS.read_bytes())))
    at = table.schema.get_field_index("timestamp")
    ticks = table.column(at).cast(pa.timestamp("ms"))
    table = table.set_column(at, "timestamp", ticks).sort_by("timestamp")
    text = STATEMENTS[1]
    with chronicle.open(tmp_path) as db:
        db.create_stream("flights", table.schema, time="timestamp").append(table)
        pairs = db.sql(text).fetchall()
        assert len(pairs) == 7
        for order in ("eager", "both"):
            asked = text.replace("SELECT", f"SELECT /*+ recent({order}) */", 1)
            assert db.sql(asked).fetchall() == pairs
        alone = re.sub(r"SELECT.*?FROM", "SELECT l.lat FROM", text, count=1, flags=re.S)
        assert len(db.sql(alone.replace("RECENT", "RECENT ANTI", 1)).fetchall()) == 221
        assert len(db.sql(alone.replace("RECENT", "RECENT SEMI", 1)).fetchall()) == 7
