"""ALTER STREAM: one whose columns and settings have changed is a fresh one of what it holds."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chronicle
from chronicle.api.database import Database, catalog_of
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.catalog.streams import handle_of
from chronicle.errors import (
    AttributeNotFound,
    InvalidArgument,
    ReadOnlyStore,
    SchemaMismatch,
    SqlError,
    StreamExists,
    StreamNotFound,
    StreamOwned,
)
from chronicle.store.store import Store
from chronicle.tests.faulty_files import Fault, FaultyFiles, SimulatedCrash, strikes
from chronicle.tests.memory_files import MemoryFiles

from .rounds import rounds
from .test_deletes import PERSON, holding

SMALL = {"leaf_bytes": 1024, "segment_bytes": 8192, "late_events_max": 30, "compaction": "manual"}
SCHEMA = pa.schema([("t", pa.int64()), ("a", pa.string()), ("b", pa.int64()), ("c", pa.float64())])
NARROW = SCHEMA.set(2, pa.field("b", pa.int32()))
KINDS = [
    *(pa.string(), pa.int64(), pa.float64(), pa.int16(), pa.uint8(), pa.uint32(), pa.float32()),
    *(pa.decimal128(5, 2), pa.bool_(), pa.timestamp("us")),
]
WIDER = {
    pa.int16(): [pa.int32(), pa.int64(), pa.float64(), pa.float32()],
    pa.int32(): [pa.int64(), pa.float64()],
    pa.uint8(): [pa.uint32(), pa.int16(), pa.uint64(), pa.float32()],
    pa.uint32(): [pa.int64(), pa.uint64(), pa.float64()],
    pa.float32(): [pa.float64()],
    pa.decimal128(5, 2): [pa.decimal128(9, 2)],
}


def value(type_: pa.DataType, rng: random.Random) -> Any:
    if rng.random() < 0.1:
        return None
    if pa.types.is_string(type_):
        return rng.choice(["x", "y", "zz", PERSON])
    number = rng.randrange(100)
    if pa.types.is_boolean(type_):
        return number < 50
    if pa.types.is_timestamp(type_):
        return dt.datetime(2018, 8, 1, 0, number % 60)
    if pa.types.is_decimal(type_):
        return Decimal(number) / 4
    return number if pa.types.is_integer(type_) else number / 4


class Model:
    """A stream, and what it should hold: events in order of arrival, as lists in column order."""

    def __init__(self) -> None:
        self.memory = MemoryFiles()
        self.schema = SCHEMA
        self.events: list[list[Any]] = []
        self.defaults: dict[str, Any] = {}
        self.seed = 0
        self.open()
        self.stream = self.db.create_stream("s", SCHEMA, time="t", options=SMALL)

    def open(self) -> None:
        self.db = Database(StoreCatalog(Store.open("memory", files=self.memory)))
        if "s" in self.db.streams():
            self.stream = self.db.stream("s")

    def run(self, kind: str, at: int) -> None:
        self.seed += 1
        rng = random.Random(self.seed * 1000 + at)
        names = self.schema.names
        chosen = 1 + at % max(1, len(names) - 1)
        if kind == "append":
            newest = max((e[0] for e in self.events), default=0)
            late = rng.randrange(3) == 0
            times = sorted(
                max(0, newest + (-rng.randrange(80) if late else i // 2)) for i in range(at)
            )
            new = [[t, *(value(f.type, rng) for f in list(self.schema)[1:])] for t in times]
            self.events += new
            columns = zip(*new, strict=True) if new else [[] for _ in names]
            arrays = [pa.array(c, f.type) for c, f in zip(columns, self.schema, strict=True)]
            table = pa.Table.from_arrays(arrays, schema=self.schema)
            if self.seed % 3 == 0:  # what has a default may be left out
                table = table.drop_columns(list(self.defaults))
                for event in new:
                    for name, default in self.defaults.items():
                        event[names.index(name)] = default
            self.stream.append(table)
        elif kind == "rename" and len(names) > 1:
            to = f"r{at % 5}"
            field = self.schema.field(chosen)
            with suppress(SchemaMismatch):
                self.stream.rename_column(names[chosen], to)
                self.schema = self.schema.set(chosen, field.with_name(to))
                if names[chosen] in self.defaults:
                    self.defaults[to] = self.defaults.pop(names[chosen])
        elif kind == "rename time":
            self.stream.rename_column(names[0], f"t{self.seed}")
            self.schema = self.schema.set(0, pa.field(f"t{self.seed}", pa.int64()))
        elif kind == "drop" and len(names) > 1:
            self.stream.drop_column(names[chosen])
            self.schema = self.schema.remove(chosen)
            self.defaults.pop(names[chosen], None)
            for event in self.events:
                del event[chosen]
        elif kind == "add":
            name, type_ = f"n{at % 7}", KINDS[at % len(KINDS)]
            default = value(type_, rng) if at % 2 else None
            with suppress(SchemaMismatch):
                self.stream.add_column(name, type_, default=default)
                self.schema = self.schema.append(pa.field(name, type_))
                if default is not None:
                    self.defaults[name] = default
                for event in self.events:
                    event.append(default)
        elif kind == "widen":
            for i, field in enumerate(self.schema):
                for wider in WIDER.get(field.type, ())[: 1 + at % 2]:
                    self.stream.widen_column(field.name, wider)
                    self.schema = self.schema.set(i, field.with_type(wider))
                    break
        elif kind == "set":
            self.stream.set_options(
                codec=["none", "zstd", "lz4"][at % 3], leaf_bytes=1024 << at % 3
            )
        elif kind == "delete" and self.events:
            low = rng.choice(self.events)[0]
            gone = [e for e in self.events if low <= e[0] < low + 5]
            assert self.stream.delete(None, low, low + 5) == len(gone)
            self.events = [e for e in self.events if e not in gone]
        elif kind == "update" and len(names) > 1:
            assert self.stream.update({names[chosen]: "NULL"}, None, at) == sum(
                e[0] >= at for e in self.events
            )
            for event in self.events:
                if event[0] >= at:
                    event[chosen] = None
        elif kind == "crash":
            self.memory = self.memory.crash(rng, "tear")
            self.open()
        elif kind == "reopen":
            self.db.close()
            self.open()
        elif kind in ("compact", "seal"):
            getattr(self.stream, kind)()

    def check(self) -> None:
        wanted = [tuple(e) for e in sorted(self.events, key=lambda e: e[0])]
        found = self.stream.scan().read_all()
        assert found.schema.names == self.schema.names
        assert found.schema.types == self.schema.types
        rows = zip(*(c.to_pylist() for c in found.columns), strict=True)
        assert [tuple(row) for row in rows] == wanted
        for i, field in enumerate(self.schema):
            values = [e[i] for e in self.events if e[i] is not None]
            answer = self.stream.aggregate({field.name: ["count", "min", "max"]})[field.name]
            assert answer["count"] == len(values)
            assert answer["max"] == max(values, default=None)
            if i and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
                answer = self.stream.aggregate({field.name: "sum"}, 20, 120)[field.name]
                inside = [e[i] for e in self.events if e[i] is not None and 20 <= e[0] < 120]
                assert answer["sum"] == (sum(inside) if inside else None)
                self.check_windows(i, field.name)
            if i and pa.types.is_integer(field.type) and values:
                where = f'"{field.name}" = {values[0]}'
                hits = self.stream.scan(filter=where).read_all().num_rows
                assert hits == values.count(values[0])

    def check_windows(self, column: int, name: str) -> None:
        wanted: dict[int, list[Any]] = {}
        for event in self.events:
            wanted.setdefault(event[0] // 40 * 40, []).append(event[column])
        found = self.db.sql(
            f'SELECT /*+ strategy(index) */ window_start, count(*), count("{name}"), '
            f'sum("{name}") FROM TUMBLE(s, "{self.schema.names[0]}", 40) GROUP BY window_start '
            "ORDER BY 1"
        ).fetchall()
        known = {start: [v for v in some if v is not None] for start, some in wanted.items()}
        assert found == [
            (start, len(wanted[start]), len(some), sum(some) if some else None)
            for start, some in sorted(known.items())
        ]


step = st.tuples(
    st.sampled_from(
        ["append"] * 4
        + ["rename", "rename", "rename time", "drop", "add", "add", "add", "widen", "widen"]
        + ["set", "delete", "update"]
        + ["crash", "reopen", "compact", "seal"]
    ),
    st.integers(0, 120),
)


@settings(max_examples=rounds(4, 40, 400), deadline=None)
@given(steps=st.lists(step, min_size=3, max_size=14))
def test_a_stream_that_was_altered_holds_what_it_should(steps: list[tuple[str, int]]) -> None:
    model = Model()
    model.run("append", 150)
    for kind, at in steps:
        model.run(kind, at)
    model.check()
    assert model.db.check().ok
    model.db.close()


# -------------------------------------------------------------------------------------- faults

ALTERATIONS = {
    "RENAME COLUMN a TO d": ("s", ["t", "d", "b", "c"]),
    "DROP COLUMN b": ("s", ["t", "a", "c"]),
    "ADD COLUMN d DOUBLE": ("s", ["t", "a", "b", "c", "d"]),
    "ADD COLUMN d INTEGER NOT NULL DEFAULT 3": ("s", ["t", "a", "b", "c", "d"]),
    "ALTER COLUMN b TYPE DOUBLE": ("s", ["t", "a", "b", "c"]),
    "RENAME TO r": ("r", ["t", "a", "b", "c"]),
    "SET (codec = 'none', retention = 1000)": ("s", ["t", "a", "b", "c"]),
}


def filled(files: MemoryFiles | FaultyFiles) -> Database:
    db = Database(StoreCatalog(Store.open("memory", files=files)))
    stream = db.create_stream("s", NARROW, time="t", options=SMALL)
    for first in (0, 100, 60, 130):
        stream.append([{"t": first + i, "a": "xyz"[i % 3], "b": i, "c": i / 4} for i in range(40)])
    stream.append([{"t": 5, "a": "late", "b": 1, "c": None}])
    return db


@pytest.mark.crash
@pytest.mark.parametrize("text", ALTERATIONS)
@pytest.mark.parametrize("fault", ["crash_before", "crash_halfway", "crash_after"])
def test_power_cut_at_every_operation_of_an_alteration(text: str, fault: Fault) -> None:
    name, names = ALTERATIONS[text]
    outcomes = set()
    for number, memory, _, db in strikes(fault, filled, step=rounds(2, 1)):
        rows = db.stream("s").scan().read_all()
        done = False
        with suppress(SimulatedCrash):
            db.sql(f"ALTER STREAM s {text}")
            done = True
        files = memory.crash(random.Random(number), "tear")
        with Database(StoreCatalog(Store.open("memory", files=files))) as left:
            assert left.check().ok
            (stream,) = map(left.stream, left.streams())
            assert stream.count == 161
            codec = handle_of(stream).options.codec
            altered = (stream.name, stream.schema.names) == (name, names) and (
                "codec" not in text or codec == "none"
            )
            if "TYPE" in text:
                altered = stream.schema.field("b").type == pa.float64()
            assert altered or (stream.name, stream.schema.names, codec) == (
                "s",
                SCHEMA.names,
                "lz4",
            )
            assert altered or not done, "what was acknowledged is gone"
            shared = [n for n in ("t", "c") if n in stream.schema.names]
            assert stream.scan(columns=shared).read_all() == rows.select(shared)
            stream.append([{stream.time: 500}])
            if "DEFAULT" in text and altered:
                assert stream.aggregate({"d": ["count", "sum"]})["d"] == {"count": 162, "sum": 486}
            if "b" in stream.schema.names:
                assert stream.aggregate({"b": ["sum"]})["b"]["sum"] == 4 * sum(range(40)) + 1
            assert left.check().ok
        outcomes.add(altered)
    assert outcomes == {True, False}


# ------------------------------------------------------------------------------ what may be said


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream("s", SCHEMA, time="t", codec="none", options=SMALL)
        stream.append(
            [{"t": t, "a": PERSON if t % 9 == 0 else "b", "b": t % 7, "c": 0.5} for t in range(500)]
        )
        stream.create_index("a")
        stream.create_index("b", lag_events_max=1000)
        yield database


def test_an_index_follows_its_column(db: Database, tmp_path: Path) -> None:
    stream = db.stream("s")
    stream.rename_column("B", "e")
    assert [i["attribute"] for i in stream.indexes()] == ["a", "e"]
    assert stream.indexes()[1]["covered"] > 0
    catalog_of(db).indexes_of("s").catch_up(stream.snapshot().state)
    text = "SELECT /*+ strategy({}) */ count(*) FROM s WHERE e = 3 AND a = 'b'"
    found = {db.sql(text.format(plan)).fetchall()[0][0] for plan in ("replay", "index", "auto")}
    assert len(found) == 1
    stream.drop_column("a")
    assert [(i["attribute"], i["lag_events_max"]) for i in stream.indexes()] == [("e", 1000)]
    assert db.check().ok
    db.close()
    with chronicle.open(tmp_path / "store") as again:
        assert [i["attribute"] for i in again.stream("s").indexes()] == ["e"]
        assert again.sql("SELECT count(*) FROM s WHERE e = 3").fetchall() == [(71,)]
        assert again.check().ok


def test_no_file_holds_a_dropped_column_after_compaction(db: Database, tmp_path: Path) -> None:
    stream = db.stream("s")
    stream.seal()
    catalog_of(db).indexes_of("s").catch_up(stream.snapshot().state)
    before = stream.scan(columns=["b", "a"])
    assert holding(tmp_path)
    stream.drop_column("a")
    assert before.read_all().column("a").to_pylist().count(PERSON) == 56
    stream.compact()
    assert holding(tmp_path) == []
    stream.add_column("a", pa.int32())
    assert stream.scan(columns=["a"]).read_all().column("a").null_count == 500
    assert db.check().ok


def test_a_stream_is_renamed_with_its_indexes_and_positions(db: Database, tmp_path: Path) -> None:
    stream, count = db.stream("s"), db.stream("s").count
    db.sql('ALTER STREAM S RENAME TO "r / 2"')
    assert db.streams() == ["r / 2"]
    with pytest.raises(StreamNotFound):
        db.stream("s")
    with pytest.raises(chronicle.ChronicleError):
        stream.append([{"t": 1}])
    renamed = db.stream("r / 2")
    assert renamed.count == count
    assert [i["attribute"] for i in renamed.indexes()] == ["a", "b"]
    renamed.append([{"t": 1000, "a": "new"}])
    assert db.sql("SELECT t FROM \"r / 2\" WHERE a = 'new'").fetchall() == [(1000,)]
    db.create_stream("s", SCHEMA, time="t")
    with pytest.raises(StreamExists):
        db.rename_stream("s", "r / 2")
    with pytest.raises(InvalidArgument):
        db.rename_stream("s", "")
    db.close()
    with chronicle.open(tmp_path / "store") as again:
        assert again.streams() == ["r / 2", "s"]
        assert again.check().ok


def test_settings_change(db: Database) -> None:
    stream = db.stream("s")
    stream.seal()
    db.sql("ALTER STREAM s SET (retention = 100, codec = 'zstd', durability = 'interval')")
    stream.append([{"t": 600}])
    options = catalog_of(db).stream_options("s")
    assert (options["retention"], options["codec"], options["durability"]) == (
        "100", "zstd", "interval",
    )  # fmt: skip
    stream.seal()
    stream.append([{"t": 800}])
    stream.seal()
    assert stream.time_range == (800, 800)
    stream.set_options(retention=None, durability="commit")
    stream.append([{"t": 5000}])
    stream.seal()
    assert stream.count == 2
    for wrong, said in (
        ({"retention": "3 days"}, "plain number of ticks"),
        ({"codec": "zip"}, "codec must be one of"),
        ({"colour": 1}, "no setting 'colour'"),
        ({"leaf_bytes": 1}, "leaf_bytes must be"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            stream.set_options(**wrong)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("RENAME COLUMN a TO B", SchemaMismatch, "an attribute 'b' already"),
        ("RENAME COLUMN z TO y", SqlError, "no attribute 'z'"),
        ("DROP COLUMN z", SqlError, "no attribute 'z'"),
        ("DROP COLUMN t", InvalidArgument, "cannot be dropped"),
        ("RENAME COLUMN a", SqlError, "expected TO"),
        ("RENAME", SqlError, "expected the name of the column"),
        ("SET (retention)", SqlError, "expected = after the option"),
        ("SET retention = '3 days'", SqlError, "options in parentheses"),
        ("SET (retentoin = '3 days')", SqlError, "did you mean retention"),
        ("ALTER COLUMN a TYPE INTEGER", InvalidArgument, "types only become wider"),
        ("ALTER COLUMN b TYPE INTEGER", InvalidArgument, "fill it with UPDATE"),
        ("ALTER COLUMN b TYPE DOUBLE", InvalidArgument, "types only become wider"),
        ("ALTER COLUMN t TYPE DOUBLE", InvalidArgument, "whose type stays"),
        ("ALTER COLUMN z TYPE DOUBLE", SqlError, "no attribute 'z'"),
        ("ALTER COLUMN b", SqlError, "expected TYPE"),
        ("ALTER COLUMN b TYPE", SqlError, "expected the new type of column 'b'"),
        ("CHANGE b", SqlError, "expected ADD COLUMN, ALTER COLUMN, DROP COLUMN"),
        ("ADD COLUMN z INTEGER NOT NULL", SqlError, "give it a DEFAULT"),
        ("ADD COLUMN z INTEGER NOT NULL DEFAULT NULL", SqlError, "give it a DEFAULT"),
        ("ADD COLUMN z INTEGER DEFAULT b", SqlError, "is a literal"),
        ("ADD COLUMN z INTEGER DEFAULT random()", SqlError, "is a literal"),
        ("ADD COLUMN z INTEGER DEFAULT", SqlError, "expected the default of column 'z'"),
        ("ADD COLUMN z TINYINT DEFAULT 300", SqlError, "cannot take the value '300'"),
        ("ADD COLUMN z DATE DEFAULT 'soon'", SqlError, "cannot take the value 'soon'"),
    ],
)
def test_what_is_wrong_is_told_and_changes_nothing(
    db: Database, text: str, kind: type[Exception], said: str
) -> None:
    version = db.stream("s").snapshot().version
    with pytest.raises(kind, match=said):
        db.sql(f"ALTER STREAM s {text}")
    assert db.stream("s").snapshot().version == version
    assert db.stream("s").schema.names == SCHEMA.names


def test_a_name_is_not_given_again_while_a_segment_knows_it(db: Database) -> None:
    stream = db.stream("s")
    stream.rename_column("a", "d")
    stream.rename_column("d", "a")
    stream.rename_column("a", "d")
    with pytest.raises(SchemaMismatch, match="was called 'a'"):
        stream.rename_column("b", "a")
    with pytest.raises(SchemaMismatch, match="was called 'a'"):
        stream.add_column("A", pa.string())
    stream.delete(None)
    stream.rename_column("b", "a")


def test_live_queries_and_owners(db: Database, tmp_path: Path) -> None:
    db.sql("CREATE LIVE QUERY q AS SELECT t, b FROM s WHERE b > 3")
    db.run_live()
    for text in ("RENAME COLUMN a TO d", "DROP COLUMN a", "RENAME TO r"):
        with pytest.raises(StreamOwned, match="read by the live queries q"):
            db.sql(f"ALTER STREAM s {text}")
    for text in ("DROP COLUMN b", "SET (codec = 'zstd')", "RENAME TO r"):
        with pytest.raises(StreamOwned):
            db.sql(f"ALTER STREAM q {text}")
    db.sql("ALTER STREAM s SET (codec = 'zstd')")
    with chronicle.open(tmp_path / "store", mode="r") as reading:
        for change in (
            lambda: reading.sql("ALTER STREAM s DROP COLUMN a"),
            lambda: reading.stream("s").drop_column("a"),
            lambda: reading.rename_stream("s", "r"),
        ):
            with pytest.raises(ReadOnlyStore):
                change()
    db.live("q").drop()
    with pytest.raises(AttributeNotFound):
        db.stream("s").drop_column("nothing")
    assert catalog_of(db).engine.access("ALTER STREAM s RENAME TO r").renamed == "r"
    assert catalog_of(db).engine.access("ALTER STREAM s RENAME COLUMN a TO r").renamed is None


def test_readers_and_tails_follow(db: Database, tmp_path: Path) -> None:
    stream = db.stream("s")
    with chronicle.open(tmp_path / "store", mode="r") as reading, stream.tail() as tail:
        other = reading.stream("s")
        assert other.schema.names == SCHEMA.names
        stream.append([{"t": 600, "a": "x", "b": 1, "c": 1.0}])
        stream.rename_column("c", "d")
        stream.append([{"t": 601, "a": "y", "b": 1, "d": 2.0}])
        assert other.scan(500).read_all().column("d").to_pylist() == [1.0, 2.0]
        with pytest.raises(SchemaMismatch, match="'c' of the stream 's' is gone"):
            list(iter(tail.take, None))
    with stream.tail(columns=["t", "a"], after="now") as tail:
        stream.append([{"t": 602, "a": "z", "b": 1, "d": 2.0}])
        stream.drop_column("d")
        stream.append([{"t": 603, "a": "w", "b": 1}])
        found = []
        while (piece := tail.take()) is not None:
            found += piece.events.column("t").to_pylist()
        assert found == [602, 603]
