"""Indexes on pairs and derived values through what happens to their stream, and its interfaces."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import AttributeNotFound, InvalidArgument, SqlError, UnsupportedType
from chronicle.indexes import stream_indexes
from chronicle.indexes.index_key import index_key
from chronicle.schema import StreamSchema
from chronicle.tests.patience import PATIENCE_S

SCHEMA = pa.schema(
    [
        ("t", pa.int64()), ("k", pa.string()), ("x", pa.int64()), ("f", pa.float64()),
        ("s", pa.float32()), ("d", pa.decimal128(9, 2)), ("b", pa.bool_()), ("odd name", pa.int8()),
    ]
)  # fmt: skip
OPTIONS = {"leaf_bytes": 1 << 12, "segment_bytes": 1 << 16}
KEYS = ["k, x", "x - PREV(x)", "f - PREV(f, 2) PARTITION BY k"]
ASKED = (
    "SELECT /*+ strategy({}) */ * FROM s MATCH_RECOGNIZE ({} ORDER BY t MEASURES A.t AS a, B.t AS b"
    " PATTERN (A B) WITHIN 50 DEFINE {})"
)
PATTERNS = [
    ("", "B AS x - PREV(x) > 995"),
    ("", "A AS k = 'k3' AND x < 30, B AS k = 'k4'"),
    ("PARTITION BY k", "B AS f - PREV(f, 2) < -0.99"),
]


def events(count: int, start: int, seed: int) -> pa.Table:
    r = np.random.default_rng(seed)
    columns = {
        "t": start + np.arange(count), "k": [f"k{v}" for v in r.integers(0, 20, count)],
        "x": r.integers(0, 1000, count), "f": r.random(count), "s": r.random(count),
    }  # fmt: skip
    table = pa.table(columns)
    for field in list(SCHEMA)[5:]:
        table = table.append_column(field, pa.nulls(count, field.type))
    return table.cast(SCHEMA)


def same(database: Any, used: int = 3) -> None:
    """Patterns through indexes and without; the filter through the pair."""
    looked_up = 0
    for partition, defined in PATTERNS:
        texts = [ASKED.format(name, partition, defined) for name in ("replay", "all")]
        found = [database.sql(text).fetchall() for text in texts]
        assert found[0] == found[1]
        looked_up += "indexes:" in str(database.explain(texts[1]))
    assert looked_up == used
    where = "k {} 'k3' AND x BETWEEN 7 AND 9"
    found = [
        database.sql(f"SELECT t FROM s WHERE {where.format(how)} ORDER BY t").fetchall()
        for how in ("=", "|| '' =")
    ]
    assert found[0] == found[1]


def test_life_of_derived_indexes(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", SCHEMA, "t", options=OPTIONS)
        for start in range(0, 20_000, 2_000):
            stream.append(events(2_000, start, start))
        database.sql("CREATE INDEX ON s (k, x)")
        database.sql("CREATE INDEX ON s (X-prev(x))")
        database.sql("CREATE INDEX ON s (f - PREV(f, 2)) PARTITION BY k WITH (lag_events_max = 9)")
        database.sql("CREATE INDEX IF NOT EXISTS ON s ((x - PREV(x, 1)))")
        shown = database.sql("SHOW INDEXES ON s").fetchall()
        assert [row[1] for row in shown] == KEYS
        assert [entry["attribute"] for entry in stream.indexes()] == KEYS
        assert stream.indexes()[2]["lag_events_max"] == 9
        same(database)
        stream.append(events(3_000, 20_000, 1))  # with a tail
        same(database)
        stream.append(events(40, 500, 2))  # late, between and beside
        same(database, used=2)  # what looks back in a partition waits for compaction
        stream.compact()
        catalog_of(database).indexes_of("s").catch_up(stream.snapshot().state)
        same(database)
        stream.delete("x < 100 AND t > 5000", None, None)
        same(database)
        catalog_of(database).indexes_of("s").catch_up(stream.snapshot().state)
        assert database.check().problems == []
        database.backup(tmp_path / "copy")
    for path in (tmp_path / "s", tmp_path / "copy"):
        with chronicle.open(path) as database:
            assert [entry["attribute"] for entry in database.stream("s").indexes()] == KEYS
            same(database)
            assert database.check().problems == []
            database.sql("DROP INDEX ON s (f - PREV(f,2)) PARTITION BY k")
            database.stream("s").drop_index('"k",x')
            assert [entry["attribute"] for entry in database.stream("s").indexes()] == KEYS[1:2]
    with chronicle.open(tmp_path / "s", mode="r") as database:
        assert len(database.stream("s").indexes()) == 1


def test_a_thread_that_waits_during_a_rename_takes_no_index_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", SCHEMA, "t", options=OPTIONS)
        stream.create_index("x")
        manager, arrived = catalog_of(database).indexes, threading.Event()
        indexes = manager.of("s")
        follow = indexes.follow

        def followed(*what: Any) -> None:
            arrived.set()
            follow(*what)

        monkeypatch.setattr(indexes, "follow", followed)
        with indexes.held():
            waiting = threading.Thread(target=manager._advance, args=("s",))
            waiting.start()
            assert arrived.wait(PATIENCE_S)
            stream.rename_column("x", "y")
        waiting.join()
        assert [entry["attribute"] for entry in stream.indexes()] == ["y"]


def test_keys_follow_the_names_of_their_columns(tmp_path: Path) -> None:
    def listed(database: Any) -> list[str]:
        return [entry["attribute"] for entry in database.stream("s").indexes()]

    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", SCHEMA, "t", options=OPTIONS)
        stream.append(events(6_000, 0, 0))
        for key in (*KEYS, '"odd name"'):
            stream.create_index(key)
        stream.rename_column("k", "the key")
        stream.rename_column("x", "s - f")  # reads as an expression of columns that there are
        stream.rename_column("odd name", "odd one")
        assert listed(database) == [
            '"the key", "s - f"', '"s - f" - PREV("s - f")',
            'f - PREV(f, 2) PARTITION BY "the key"', "odd one",
        ]  # fmt: skip
    with chronicle.open(tmp_path / "s") as database:
        stream = database.stream("s")
        for name, to in (("odd one", "odd name"), ("s - f", "x"), ("the key", "k")):
            stream.rename_column(name, to)
        assert listed(database) == [*KEYS, "odd name"]
        catalog_of(database).indexes_of("s").catch_up(stream.snapshot().state)
        same(database)
        stream.drop_column("f")
        assert listed(database) == [*KEYS[:2], "odd name"]
        stream.drop_column("x")
        assert listed(database) == ["odd name"]
        assert database.check().problems == []


def test_what_a_killed_process_built_is_whole(tmp_path: Path) -> None:
    script = (
        "import os, sys, numpy as np, pyarrow as pa, chronicle\n"
        "from chronicle.indexes import stream_indexes\n"
        "from chronicle.indexes.storage import IndexStorage\n"
        "stream_indexes.RUN_EVENTS = 4096\n"
        "writes, real = [int(sys.argv[2])], IndexStorage.write\n"
        "def write(self, puts, deletes=None):\n"
        "    real(self, puts, deletes)\n"
        "    self.flush()\n"
        "    writes[0] -= 1\n"
        "    if not writes[0]: os._exit(9)\n"
        "db = chronicle.open(sys.argv[1])\n"
        "s = pa.schema([('t', pa.int64()), ('k', pa.int32()), ('x', pa.float64())])\n"
        "stream = db.create_stream('s', s, 't', options={'leaf_bytes': 4096})\n"
        "x = np.random.default_rng(1).random(16_000)\n"
        "stream.append(pa.table({'t': np.arange(16_000), 'k': np.arange(16_000) % 7, 'x': x}))\n"
        "IndexStorage.write = write\n"
        "stream.create_index('k, x')\n"
        "stream.create_index('x - PREV(x) PARTITION BY k')\n"
        "db.close()\n"
    )
    killed = 0
    events_of_a_run = stream_indexes.RUN_EVENTS
    stream_indexes.RUN_EVENTS = 4096
    try:
        for number in (1, 3, 6, 9, 12, 40):
            path = tmp_path / str(number)
            done = subprocess.run(
                [sys.executable, "-c", script, str(path), str(number)],
                timeout=PATIENCE_S,
                check=False,
            )
            killed += done.returncode == 9
            with chronicle.open(path) as database:
                assert database.check().problems == []
                stream = database.stream("s")
                known = {entry["attribute"] for entry in stream.indexes()}
                for key in ("k, x", "x - PREV(x) PARTITION BY k"):
                    if key not in known:
                        stream.create_index(key)
                catalog_of(database).indexes_of("s").catch_up(stream.snapshot().state)
                assert database.check().problems == []
    finally:
        stream_indexes.RUN_EVENTS = events_of_a_run
    assert 3 <= killed < 6


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("X", "x"), ("K , x", "k, x"), ("odd name", "odd name"), ('"odd name"', "odd name"),
        ('k, "odd name"', 'k, "odd name"'), ("abs(x - (PREV(f)*2))", "ABS(x - (PREV(f) * 2))"),
        ("-x + prev(x,3) partition by B, k", "(-x) + PREV(x, 3) PARTITION BY b, k"),
        ("x - 5", "x - 5"), ("f * 0.5 - f", "(f * 0.5) - f"), ("t - PREV(t)", "t - PREV(t)"),
    ],
)  # fmt: skip
def test_names_of_keys(key: str, name: str) -> None:
    schema = StreamSchema(SCHEMA, "t")
    found = index_key(key, schema)
    assert found.name == name
    assert index_key(name, schema) == found


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        ("x - PREV(x) PARTITION BY x + 1", InvalidArgument, "expected an attribute"),
        ("x, f - 1", InvalidArgument, "expected an attribute, found f - 1"),
        ("x - PREV(x) PARTITION BY f", UnsupportedType, "floating-point"),
        ("(" * 199 + "x" + ")" * 199, InvalidArgument, "an index is on"),
        ("x" + " + x" * 3_000, InvalidArgument, "up to 400 characters"),
        ("x * 0.5", UnsupportedType, "whole numbers or doubles"), ("d", UnsupportedType, "decimal"),
        ("x + 4611686018427387904", InvalidArgument, "below 2"),
        ("x - PREV(y)", AttributeNotFound, "no attribute 'y'"),
        ("x - f PARTITION BY k", InvalidArgument, "no PREV"), ("x - d", UnsupportedType, "decimal"),
        ("x - PREV(x", InvalidArgument, "an index is on"), ("5", InvalidArgument, "an index is on"),
        ("x - PREV(x, 0)", InvalidArgument, "1 to 1000"), ("x + 1.5e", InvalidArgument, "finite"),
        ("x - PREV(x, f)", InvalidArgument, "1 to 1000"), ("x, x", InvalidArgument, "needs two"),
        ("x, y", AttributeNotFound, "no attribute 'y'"), ("x - k", UnsupportedType, "k string"),
        ("x + " + "9" * 350, InvalidArgument, "finite"), ("k, d", UnsupportedType, "decimal"),
        ("x, k, f", InvalidArgument, "two attributes"),
        ("PREV(x)", InvalidArgument, "an index is on"),
        ("s - PREV(s) + 1", UnsupportedType, "32-bit"),
        ("y", AttributeNotFound, "no attribute 'y'"), ("sqrt(x)", InvalidArgument, "cannot be on"),
    ],
)  # fmt: skip
def test_keys_that_there_are_not(
    tmp_path: Path, key: str, error: type[Exception], text: str
) -> None:
    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", SCHEMA, "t")
        with pytest.raises(error, match=text):
            stream.create_index(key)
        body, _, partition = key.partition(" PARTITION BY ")
        behind = f" PARTITION BY {partition}" if partition else ""
        with pytest.raises((SqlError, UnsupportedType)):
            database.sql(f"CREATE INDEX ON s ({body}){behind}")
        assert stream.indexes() == []
