"""Columns with a default, and columns that became wider, through every interface."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database, catalog_of
from chronicle.catalog.streams import handle_of
from chronicle.errors import InvalidArgument, InvalidData, SchemaMismatch, UnsupportedFormat
from chronicle.schema import StreamSchema
from chronicle.store import catalog as manifests
from chronicle.store.catalog import read_manifest
from chronicle.store.evolution import Evolution, evolution_of, widens
from chronicle.tests.reading import read_batches

SCHEMA = pa.schema([("t", pa.int64()), ("a", pa.int32()), ("k", pa.string())])


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream("s", SCHEMA, time="t", options={"leaf_bytes": 4096})
        stream.append([{"t": t, "a": t % 10, "k": "ab"[t % 2]} for t in range(4000)])
        stream.append([{"t": 7, "a": 1, "k": "late"}])
        yield database


def test_types_that_hold_all_of_another() -> None:
    numbers = {
        pa.int8(): (-128, 127), pa.int16(): (-(2**15), 2**15 - 1),
        pa.int32(): (-(2**31), 2**31 - 1),
        pa.int64(): (-(2**63), 2**63 - 1), pa.uint8(): (0, 255), pa.uint16(): (0, 2**16 - 1),
        pa.uint32(): (0, 2**32 - 1), pa.uint64(): (0, 2**64 - 1),
    }  # fmt: skip
    bits = {pa.float32(): 24, pa.float64(): 53}
    for old, (low, high) in numbers.items():
        for new, (least, most) in numbers.items():
            assert widens(old, new) == (old != new and least <= low and high <= most), (old, new)
        for new, exact in bits.items():
            assert widens(old, new) == (max(-low, high) <= 2**exact), (old, new)
    assert widens(pa.float32(), pa.float64())
    assert not widens(pa.float64(), pa.float32())
    assert widens(pa.decimal128(5, 2), pa.decimal128(6, 2))
    assert not widens(pa.decimal128(5, 2), pa.decimal128(6, 3))
    assert widens(pa.int64(), pa.decimal128(38, 0))
    assert widens(pa.uint8(), pa.decimal128(5, 2))
    assert not widens(pa.uint64(), pa.decimal128(19, 0))
    assert not widens(pa.date32(), pa.timestamp("us"))
    assert not widens(pa.string(), pa.large_string())


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        (pa.int64(), 2**63 - 1), (pa.int64(), -(2**63)), (pa.uint64(), 2**64 - 1),
        (pa.float64(), 1e308), (pa.float64(), 0.1), (pa.float64(), float("nan")),
        (pa.float64(), float("-inf")), (pa.float64(), -0.0), (pa.float32(), 0.25),
        (pa.bool_(), True), (pa.string(), "ünïcödé"), (pa.binary(), b"\x00\xff"),
        (pa.decimal128(9, 2), Decimal("-1.25")), (pa.large_string(), "x"),
    ],
)  # fmt: skip
def test_aggregates_of_a_default_are_those_of_its_values(
    type_: pa.DataType, default: object
) -> None:
    written = StreamSchema(pa.schema([("t", pa.int64())]), "t")
    stream = written.with_attribute("c", type_, False, default)
    evolution = evolution_of(written, stream)
    assert evolution is not None
    from chronicle.store.columns import ColumnView
    from chronicle.store.leaf import zone_table

    ticks = pa.array(np.arange(1300))
    bare = zone_table(written.time, [ColumnView(written.attributes[0], ticks)], 0, 1300)
    values = stream.attribute("c").missing(1300)
    views = [ColumnView(a, c) for a, c in zip(stream.attributes, (ticks, values), strict=True)]
    assert np.array_equal(evolution.table(bare), zone_table(stream.time, views, 0, 1300))


def test_a_default_comes_back_as_it_is() -> None:
    arrow = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("d", pa.decimal128(9, 2))])
    schema = StreamSchema(arrow, "t", {"x": float("nan"), "d": Decimal("1.5")})
    for again in (
        StreamSchema.from_json(json.loads(json.dumps(schema.to_json()))),
        pickle.loads(pickle.dumps(schema)),
        schema.renamed(["t", "x", "d"]),
    ):
        assert str(again.defaults) == str(schema.defaults)
        assert again == schema
    assert "defaults" not in StreamSchema(arrow, "t").to_json()
    assert list(schema.without("x").defaults) == ["d"]
    for wrong in ({"t": 1}, {"z": 1}, {"d": "x"}, {"d": 1.125}):
        with pytest.raises(InvalidArgument):
            StreamSchema(arrow, "t", wrong)


def test_rows_that_leave_a_column_out(db: Database) -> None:
    stream = db.stream("s")
    stream.add_column("n", pa.int64(), nullable=False, default=5)
    stream.add_column("o", pa.string(), default="none")
    stream.append([{"t": 5000}, {"t": 5001, "o": None, "n": 6}])
    stream.append(pa.table({"t": [5002], "o": ["x"]}))
    db.sql("INSERT INTO s (t) VALUES (5003)")
    rows = stream.scan(5000, columns=["n", "o"]).read_all().to_pylist()
    assert rows == [
        {"n": 5, "o": "none"}, {"n": 6, "o": None}, {"n": 5, "o": "x"}, {"n": 5, "o": "none"},
    ]  # fmt: skip
    with pytest.raises(InvalidData):
        stream.append([{"t": 5004, "n": None}])
    with pytest.raises(SchemaMismatch):
        stream.append([{"t": 5004, "p": None}])
    schema = stream.event_schema
    given = {
        "csv": b"t,o\n1,x\n2,\n",
        "ndjson": b'{"t": 1, "o": "x"}\n{"t": 2, "n": null}\n{"t": 3, "n": 9}\n',
    }
    found = {
        kind: [
            tuple(row[name] for name in ("t", "n", "o"))
            for batch in read_batches(data, kind, schema=schema)
            for row in batch.to_pylist()
        ]
        for kind, data in given.items()
    }
    assert found["ndjson"] == [(1, 5, "x"), (2, 5, "none"), (3, 9, "none")]
    assert [n for _, n, _ in found["csv"]] == [5, 5]


def test_indexes_patterns_and_snapshots_over_old_segments(db: Database, tmp_path: Path) -> None:
    stream = db.stream("s")
    before = stream.snapshot()
    reading = chronicle.open(tmp_path / "store", mode="r")
    db.sql("ALTER STREAM s ADD COLUMN n INTEGER NOT NULL DEFAULT 5")
    stream.append([{"t": 4000 + i, "a": i, "k": "c", "n": i} for i in range(1000)])
    stream.append([{"t": 9, "a": 3, "k": "late", "n": 77}])
    for key in ("n", "a", '"n, a"', "n - PREV(n)"):
        stream.create_index(key.strip('"'))
    assert before.schema.names == ["t", "a", "k"]
    assert sum(batch.num_rows for batch in before.scan()) == 4001
    assert reading.stream("s").aggregate({"n": "sum"})["n"]["sum"] == 4001 * 5 + 499500 + 77
    text = (
        "SELECT {} count(*) FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS x "
        "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN 20 DEFINE A AS n = 5 AND a = 3, "
        "B AS n >= PREV(n) AND a = 4)"
    )
    hints = ("", *(f"/*+ strategy({which}) */" for which in ("replay", "index", "all")))
    counts = {db.sql(text.format(hint)).fetchall()[0][0] for hint in hints}
    assert len(counts) == 1
    assert counts != {0}
    for where in ("n = 5", "n <> 5", "n IS NULL", "n = 77", "n > 4 AND a = 2"):
        found = {
            db.sql(f"SELECT {hint} count(*), sum(n) FROM s WHERE {where}").fetchall()[0]
            for hint in ("/*+ strategy(replay) */", "/*+ strategy(index) */", "")
        }
        rows = stream.scan(filter=where).read_all()
        assert found == {(rows.num_rows, sum(rows.column("n").to_pylist()) or None)}
    assert stream.delete("n = 5 AND t < 100") == 101
    assert db.check().ok
    db.backup(tmp_path / "copy")
    with chronicle.open(tmp_path / "copy") as copy:
        assert copy.stream("s").aggregate({"n": ["sum"]}) == stream.aggregate({"n": ["sum"]})
        copy.stream("s").append([{"t": 99999}])
        assert copy.stream("s").scan(99999, columns=["n"]).read_all().column(0).to_pylist() == [5]
        assert copy.check().ok
    reading.close()


def test_live_queries_and_tails_see_the_default(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "store", live=True) as db:
        stream = db.create_stream("s", SCHEMA, time="t")
        with stream.tail(follow=False) as tail:
            stream.append([{"t": 1, "a": 1, "k": "x"}])
            stream.add_column("n", pa.int64(), default=4)
            stream.append([{"t": 2, "a": 2, "k": "y"}])
            assert sum(batch.num_rows for batch in tail) == 2
        with stream.tail(0, follow=False) as tail:
            told = [value for batch in tail for value in batch.column("n").to_pylist()]
        assert told == [4, 4]
        db.sql("CREATE LIVE QUERY q AS SELECT t, n FROM s WHERE n = 4")
        stream.append([{"t": 0, "a": 0, "k": "late"}, {"t": 9, "a": 3, "k": "z"}])
        stream.append([{"t": 1000, "a": 3, "k": "end", "n": 0}])
        db.run_live()
        assert db.sql("SELECT count(*), sum(n) FROM NET(q)").fetchall() == [(4, 16)]


def test_a_wider_column_is_read_as_one(db: Database, tmp_path: Path) -> None:
    stream = db.stream("s")
    stream.create_index("a")
    total = stream.aggregate({"a": ["sum", "min", "max", "first", "last"]})
    db.sql("ALTER STREAM s ALTER COLUMN a SET DATA TYPE BIGINT")
    assert stream.aggregate({"a": ["sum", "min", "max", "first", "last"]}) == total
    stream.append([{"t": 6000, "a": 2**40, "k": "big"}])
    stream.seal()
    catalog_of(db).indexes_of("s").catch_up(stream.snapshot().state)
    for hint in ("/*+ strategy(replay) */", "/*+ strategy(index) */", ""):
        text = f"SELECT {hint} count(*), max(a) FROM s WHERE a = 3 OR a > 100"
        assert db.sql(text).fetchall() == [(401, 2**40)]
    for refused in ("DOUBLE", "INTEGER", "DECIMAL(38, 0)"):  # the index has other keys
        with pytest.raises(InvalidArgument):
            db.sql(f"ALTER STREAM s ALTER COLUMN a TYPE {refused}")
    with db.stream("s").tail(0, follow=False) as tail:
        assert sum(batch.num_rows for batch in tail) == 4002
    assert db.check().ok
    db.close()
    with chronicle.open(tmp_path / "store") as again:
        assert again.stream("s").schema.field("a").type == pa.int64()
        again.stream("s").compact()
        assert again.stream("s").aggregate({"a": "max"})["a"]["max"] == 2**40
        again.sql("DROP INDEX ON s (a)")
        text = "SELECT window_start, sum(a) FROM TUMBLE(s, t, 1000) GROUP BY 1 ORDER BY 1"
        before = again.sql(text).fetchall()
        again.sql("ALTER STREAM s ALTER COLUMN a TYPE DECIMAL(38, 0)")
        assert again.sql(text).fetchall() == before
        again.stream("s").append([{"t": 0, "a": Decimal(10**37), "k": "big"}])
        again.stream("s").compact()
        assert again.sql(text).fetchall() == [(0, before[0][1] + 10**37), *before[1:]]
        assert again.check().ok
        assert again.check().ok


def test_an_index_that_would_sort_otherwise_is_named(db: Database) -> None:
    stream = db.stream("s")
    stream.create_index("a - PREV(a)")
    with pytest.raises(InvalidArgument, match=r"the index on s \(a - PREV\(a\)\).*drop it"):
        stream.widen_column("a", pa.int64())
    stream.drop_index("a - PREV(a)")
    stream.create_index("a")
    with pytest.raises(InvalidArgument, match=r"the index on s \(a\).*drop it"):
        stream.widen_column("a", pa.float64())
    stream.drop_index("a")
    stream.widen_column("a", pa.float64())
    stream.create_index("a")
    assert db.sql("SELECT count(*) FROM s WHERE a = 3.0").fetchall() == [(400,)]


def test_an_older_release_refuses_the_manifest(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, directory = handle_of(db.stream("s")).files, handle_of(db.stream("s")).directory
    monkeypatch.setattr(manifests, "MANIFEST_VERSION", 2)
    assert read_manifest(files, directory) is not None
    db.stream("s").add_column("n", pa.int64(), default=4)
    with pytest.raises(UnsupportedFormat):
        read_manifest(files, directory)


def test_an_evolution_says_what_it_changes() -> None:
    written = StreamSchema(SCHEMA, "t")
    assert evolution_of(written, written) is None
    assert evolution_of(written, written.with_attribute("n", pa.int64())) is None
    wider = written.with_type("a", pa.int64()).with_attribute("n", pa.int64(), True, 1)
    evolution = evolution_of(written, wider)
    assert isinstance(evolution, Evolution)
    assert evolution.changes(["t", "a"])
    assert evolution.changes(["n"])
    assert not evolution.changes(["t", "k"])
