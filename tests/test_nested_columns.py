"""Columns of lists and structs, through every interface of an embedded database."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chronicle
from chronicle.api.database import Database
from chronicle.errors import InvalidArgument, InvalidData, SchemaMismatch, SqlError, UnsupportedType
from chronicle.formats.kinds import name_of_type, parse_type, parse_types
from chronicle.formats.layout import Layout
from chronicle.formats.reader import EventReader
from chronicle.formats.writers import encode
from chronicle.tests.rounds import rounds

INNER = pa.struct([("a", pa.int64()), ("b", pa.string())])
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.float32(): st.floats(width=32, allow_nan=False, allow_infinity=False),
    pa.string(): st.text(st.characters(exclude_categories=("Cs",)), max_size=5),
    pa.binary(): st.binary(max_size=4),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("ms", "UTC"): st.datetimes(timezones=st.just(dt.timezone.utc)).map(
        lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
    ),
    pa.decimal128(9, 2): st.integers(-(10**8), 10**8).map(lambda n: Decimal(n) / 100),
}
NAMES = ("a", "b", "Größe", "with space")


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    structs = st.lists(
        st.tuples(st.sampled_from(NAMES), inner), min_size=1, max_size=3, unique_by=lambda f: f[0]
    )
    return inner.map(pa.list_) | structs.map(pa.struct)


TYPES = _nested(st.recursive(st.sampled_from(list(LEAVES)), _nested, max_leaves=4))


def values_of(type_: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_list(type_):
        found: st.SearchStrategy[Any] = st.lists(values_of(type_.value_type), max_size=3)
    elif pa.types.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        found = st.fixed_dictionaries({field.name: values_of(field.type) for field in fields})
    else:
        found = LEAVES[type_]
    return st.none() | found


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with chronicle.open(tmp_path / "store") as database:
        database.sql(
            "CREATE STREAM s (t BIGINT, x DOUBLE[], tags VARCHAR[], "
            "at STRUCT(a BIGINT, b VARCHAR), deep STRUCT(n BIGINT, w TIMESTAMP)[]) TIMESTAMP BY t"
        )
        yield database


ROWS: list[dict[str, Any]] = [
    {"t": 1, "x": [1.5, None], "tags": ["p", "q,\"r\""], "at": {"a": 1, "b": "ü"},
     "deep": [{"n": 1, "w": dt.datetime(2026, 3, 1, 8)}, None]},
    {"t": 2, "x": [], "tags": None, "at": None, "deep": []},
    {"t": 3, "x": None, "tags": ["2026-03-01"], "at": {"a": None, "b": None},
     "deep": [{"n": None, "w": None}]},
]  # fmt: skip


def test_types_by_name(db: Database) -> None:
    schema = db.stream("s").schema
    assert schema.field("x").type == pa.list_(pa.float64())
    assert schema.field("at").type == INNER
    assert [tuple(row)[:2] for row in db.sql("DESCRIBE s").fetchall()][1:] == [
        ("x", "DOUBLE[]"), ("tags", "VARCHAR[]"), ("at", 'STRUCT("a" BIGINT, "b" VARCHAR)'),
        ("deep", 'STRUCT("n" BIGINT, "w" TIMESTAMP)[]'),
    ]  # fmt: skip
    for text in (
        "double[]", "struct(a bigint, b varchar)", "struct(a decimal(9,2), b bigint[])[][]",
        'struct("with space" double, c struct(d date))',
    ):  # fmt: skip
        assert name_of_type(parse_type(text)) == text
    both = parse_types(["x=struct(a decimal(9,2), b bigint[]),y=double[]"])
    assert list(both) == ["x", "y"]
    for wrong in ("struct(a)", "struct()", "[]", "struct(a nope)", "struct(a bigint"):
        with pytest.raises(InvalidArgument):
            parse_type(wrong)
    with pytest.raises(SqlError, match="holds no JSON"):
        db.sql("CREATE STREAM u (t BIGINT, x JSON[]) TIMESTAMP BY t")
    with pytest.raises((SqlError, UnsupportedType)):
        db.sql("CREATE STREAM u (t BIGINT, x MAP(VARCHAR, BIGINT)) TIMESTAMP BY t")


def test_rows_of_python_and_sql(db: Database) -> None:
    stream = db.stream("s")
    stream.append(ROWS)
    assert stream.scan().read_all().to_pylist() == ROWS
    table = db.sql("SELECT * FROM s").arrow()
    assert table.schema.types == stream.schema.types
    assert table.to_pylist() == ROWS
    found = db.sql(
        "SELECT t, x[1] AS first, len(tags) AS n, at.b AS b, deep[1].w AS w FROM s WHERE at.a = 1"
    ).arrow()
    assert found.to_pylist() == [
        {"t": 1, "first": 1.5, "n": 2, "b": "ü", "w": dt.datetime(2026, 3, 1, 8)}
    ]
    assert db.sql("SELECT sum(v) FROM (SELECT unnest(x) AS v FROM s)").fetchall() == [(1.5,)]
    db.sql(
        "INSERT INTO s VALUES (4, [1, 2], ['z'], {'a': 7, 'b': 'k'}, [{'n': 1, 'w': '2026-01-01'}])"
    )
    db.sql("UPDATE s SET x = [9.0], at = {'a': 0, 'b': tags[1]} WHERE t IN (1, 4)")
    now = stream.scan().read_all().to_pylist()
    assert [row["x"] for row in now] == [[9.0], [], None, [9.0]]
    assert [row["at"] for row in now] == [
        {"a": 0, "b": "p"},
        None,
        {"a": None, "b": None},
        {"a": 0, "b": "z"},
    ]
    db.sql("DELETE FROM s WHERE list_contains(tags, 'p')")
    assert stream.count == 3
    db.sql("CREATE STREAM c TIMESTAMP BY t AS SELECT t, list_transform(x, v -> v + 1) AS y FROM s")
    assert db.sql("SELECT y FROM c WHERE t = 4").fetchall() == [([10.0],)]
    matches = db.sql(
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES struct_extract(A.at, 'b') AS b, "
        "len(B.x) AS n PATTERN (A B) DEFINE A AS x IS NULL, B AS x[1] > 1)"
    ).fetchall()
    assert matches == [(None, 1)]
    assert not db.check().problems


def test_what_does_not_fit_is_refused_whole(db: Database) -> None:
    stream = db.stream("s")
    for row, error in (
        ({"t": 1, "x": ["a"]}, (SchemaMismatch, InvalidData)),
        ({"t": 1, "x": 5}, (SchemaMismatch, InvalidData)),
        ({"t": 1, "at": {"a": 1.5}}, (SchemaMismatch, InvalidData)),
        ({"t": 1, "at": {"z": 1}}, (SchemaMismatch, InvalidData)),
        ({"t": 1, "deep": {"n": 1}}, (SchemaMismatch, InvalidData)),
    ):
        with pytest.raises(error):
            stream.append([row])
    with pytest.raises((SqlError, InvalidData)):
        db.sql("INSERT INTO s (t, at) VALUES (1, 'x')")
    assert stream.count == 0


def test_what_needs_an_order_is_refused(db: Database) -> None:
    db.stream("s").append(ROWS)
    for column in ("x", "at"):
        with pytest.raises(UnsupportedType, match="no order to index"):
            db.stream("s").create_index(column)
        with pytest.raises(InvalidArgument, match="such values are not compared"):
            db.create_stream(
                "u", db.stream("s").schema, time="t", options={"unique": column, "within": 5}
            )
        with pytest.raises(InvalidArgument, match="min needs values that have an order"):
            db.stream("s").aggregate({column: "min"})
        by_key = f"MATCH_RECOGNIZE (PARTITION BY {column} ORDER BY t MEASURES A.t AS a PATTERN (A))"
        for source in (f"s {by_key}", f"SESSION(s, t, 5, {column})"):
            with pytest.raises(SqlError, match="not grouped or ordered by"):
                db.sql(f"SELECT * FROM {source}")
        assert db.sql(f"SELECT count({column}) FROM s").fetchall() == [(2,)]
    assert db.stream("s").aggregate({"x": "count"}) == {"x": {"count": 2}}


@pytest.mark.parametrize("format", ["ndjson", "json", "csv", "arrow", "parquet"])
def test_files(db: Database, format: str) -> None:
    stream = db.stream("s")
    stream.append(ROWS)
    table = stream.scan().read_all()
    table = pa.concat_tables([table] * 10).combine_chunks()
    for some in (table, table.slice(0, 3)):
        body = b"".join(encode(some.to_batches(), some.schema, format))
        layout = Layout(target=stream.event_schema)
        read = pa.Table.from_batches(EventReader(body, format, layout=layout), stream.schema)
        read.validate(full=True)
        assert read.to_pylist() == some.to_pylist()


def test_bad_values_of_files(db: Database) -> None:
    bad: list[Any] = []
    body = (
        b'{"t":1,"x":[1],"at":{"a":1}}\n{"t":2,"x":["a"]}\n{"t":3,"at":{"z":1}}\n{"t":4,"x":7}\n'
        b'{"t":5,"deep":[{"w":"no time"}]}\n{"t":6,"deep":[{"w":"2026-01-01"}]}\n'
    )
    layout = Layout(target=db.stream("s").event_schema)
    reader = EventReader(body, "ndjson", layout=layout, on_bad=bad.append)
    table = pa.Table.from_batches(reader, db.stream("s").schema)
    assert table.column("t").to_pylist() == [1, 6]
    assert [(row.row, row.column) for row in bad] == [(2, "x"), (3, "at"), (4, "x"), (5, "deep")]
    assert "expected double[], found" in bad[0].reason
    assert bad[0].record == '{"t":2,"x":["a"]}'


def test_new_streams_of_typed_files(tmp_path: Path) -> None:
    table = pa.table({
        "t": pa.array([1, 2]), "x": pa.array([[1.0], None], pa.large_list(pa.float32())),
        "s": pa.array([{"n": 1, "u": ["a"]}, {"n": None, "u": None}]),
        "j": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', None])),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "f.parquet")
    layout = Layout(time="t", time_format="ticks")
    read = pa.Table.from_batches(EventReader(tmp_path / "f.parquet", layout=layout))
    assert read.schema.types[1:] == [
        pa.list_(pa.float32()),
        pa.struct([("n", pa.int64()), ("u", pa.list_(pa.string()))]),
        pa.json_(),
    ]  # fmt: skip
    assert read.column("s").to_pylist() == table.column("s").to_pylist()


@settings(max_examples=rounds(5, 30))
@given(st.data())
def test_random_tables_come_back_through_every_change(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    type_ = data.draw(TYPES)
    path = tmp_path_factory.mktemp("random") / "store"
    schema = pa.schema([("t", pa.int64()), ("v", type_)])
    codec = data.draw(st.sampled_from(["none", "lz4", "zstd"]))
    expected: list[tuple[int, Any]] = []
    with chronicle.open(path) as db:
        db.create_stream("s", schema, time="t", codec=codec, options={"leaf_bytes": 4096})
    for step in range(data.draw(st.integers(1, 3))):
        some = data.draw(st.lists(values_of(type_), min_size=1, max_size=5))
        repeated = some * data.draw(st.sampled_from([1, 1, 300]))
        begin = data.draw(st.integers(0, 40)) if step else 1000
        ticks = [begin + 3 * n for n in range(len(repeated))]
        table = pa.table({"t": pa.array(ticks), "v": pa.array(repeated, type_)}, schema=schema)
        with chronicle.open(path) as db:
            db.stream("s").append(table)
            expected += zip(ticks, table.column("v").to_pylist(), strict=True)
            for change in data.draw(
                st.lists(st.sampled_from(["flush", "seal", "compact"]), max_size=2)
            ):
                getattr(db.stream("s"), change)()
            found = db.stream("s").scan().read_all()
            found.validate(full=True)
            assert not db.check().problems
        expected.sort(key=lambda row: row[0])
        assert found.column("v").to_pylist() == [value for _, value in expected]
    body = {
        name: b"".join(encode(found.to_batches(), found.schema, name))
        for name in ("ndjson", "csv", "arrow", "parquet")
    }
    with chronicle.open(path, mode="r") as db:
        layout = Layout(target=db.stream("s").event_schema)
    for name, text in body.items():
        read = pa.Table.from_batches(EventReader(text, name, layout=layout), found.schema)
        assert read.to_pylist() == found.to_pylist(), name


OF_MEMBERS = (
    "SELECT {at.x} FROM {s}",
    "SELECT {at.x} AS y, t FROM {s} WHERE {at.x} > 110 LIMIT 3",
    "SELECT t FROM {s} ORDER BY {at.t}",
    "SELECT t FROM {s} ORDER BY {at.t} DESC LIMIT 3",
    "SELECT sum({at.x}), max({at.t}), count({at.k}) FROM {s} WHERE {at.t} > 80",
    "SELECT window_start, sum(x) FROM TUMBLE({s}, t, 10) WHERE {at.t} > 85 GROUP BY window_start "
    "ORDER BY 1",
    "SELECT window_start, {at.k}, first({at.x}), sum(x) FROM HOP({s}, t, 5, 10) GROUP BY "
    "window_start, {at.k} ORDER BY 1, 2",
    "SELECT window_start, sum({at.x}) FROM TUMBLE_ROWS({s}, 10) GROUP BY window_id, window_start "
    "ORDER BY 1",
    "SELECT a.t FROM {s} AS a JOIN {s} AS b ON {a.at.t} = {b.at.t} AND {a.at.k} = 1 ORDER BY 1",
    "SELECT t FROM (SELECT * FROM {s}) AS q WHERE {q.at.t} = 90",
    "SELECT first(t ORDER BY {at.t}) FROM {s}",
)


@pytest.mark.parametrize("text", OF_MEMBERS)
def test_a_member_is_not_the_column_of_its_name(tmp_path: Path, text: str) -> None:
    """Members called as columns are, the time among them, against columns of other names."""
    members = pa.struct([("t", pa.int64()), ("x", pa.int64()), ("k", pa.int64())])
    plain = [("t", pa.int64()), ("x", pa.int64()), ("k", pa.int64())]
    flat = [(f"at_{name}", pa.int64()) for name, _ in plain]
    events = [{"t": t, "x": t, "k": 0} for t in range(30)]
    inside = [{"t": 100 - t, "x": 100 + t, "k": t % 2} for t in range(30)]
    with chronicle.open(tmp_path / "store") as database:
        nested = database.create_stream("nested", pa.schema([*plain, ("at", members)]), time="t")
        nested.append([row | {"at": at} for row, at in zip(events, inside, strict=True)])
        spelled = database.create_stream("spelled", pa.schema([*plain, *flat]), time="t")
        spelled.append(
            [
                row | {f"at_{name}": value for name, value in at.items()}
                for row, at in zip(events, inside, strict=True)
            ]
        )
        dotted = re.sub(r"\{((?:\w+\.)+\w+)\}", r"\1", text).replace("{s}", "nested")
        wanted = re.sub(r"\{(\w+\.)??at\.(\w+)\}", r"\1at_\2", text).replace("{s}", "spelled")
        found = database.sql(dotted).fetchall()
        assert found == database.sql(wanted).fetchall()
        assert found
