"""Columns of JSON values, through every interface of an embedded database."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chronicle
from chronicle.api.database import Database
from chronicle.core.json_text import JSON, json_column
from chronicle.errors import (
    InvalidArgument,
    InvalidData,
    SchemaMismatch,
    SqlError,
    UnsupportedFormat,
    UnsupportedType,
)
from chronicle.formats.layout import Layout
from chronicle.formats.reader import EventReader
from chronicle.formats.writers import encode
from chronicle.store import catalog as manifests
from chronicle.tests.rounds import rounds

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner | st.none(), max_size=3)
    | st.dictionaries(TEXTS, inner | st.none(), max_size=3),
    max_leaves=8,
)  # fmt: skip


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with chronicle.open(tmp_path / "store") as database:
        database.sql("CREATE STREAM s (t BIGINT, k VARCHAR, payload JSON) TIMESTAMP BY t")
        yield database


def rows(db: Database, sql: str = "SELECT * FROM s", *params: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in db.sql(sql, list(params) or None).fetchall()]


def test_it_is_json_wherever_types_are_told(db: Database) -> None:
    assert db.stream("s").schema.field("payload").type == JSON
    assert rows(db, "DESCRIBE s")[2] == ("payload", "JSON", "YES", "")
    told = rows(db, "DESCRIBE SELECT payload, payload -> '$.a' AS a, payload ->> '$.a' AS b FROM s")
    assert told == [("payload", "JSON"), ("a", "JSON"), ("b", "VARCHAR")]


def test_what_python_gives(db: Database) -> None:
    stream = db.stream("s")
    stream.append(
        [
            {"t": 1, "payload": {"a": [1, 2.5, "ü"], "b": None}},
            {"t": 2, "payload": ' {"id": 12345678901234567890, "x": 1.10} '},
            {"t": 3, "payload": None},
            {"t": 4, "payload": [True]},
            {"t": 5, "payload": '"text"'},
            {"t": 6, "payload": "null"},
            {"t": 7},
        ]
    )
    assert [row[2] for row in rows(db)] == [
        '{"a":[1,2.5,"ü"],"b":null}', '{"id":12345678901234567890,"x":1.10}', None, "[true]",
        '"text"', "null", None,
    ]  # fmt: skip
    assert db.stream("s").scan().read_all().column("payload").type == JSON


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("{a:1}", "expected JSON, found '{a:1}' in row 2"),
        (float("nan"), "expected what JSON can say, found nan in row 2"),
        ({1, 2}, "expected what JSON can say"),
        ('"\\ud800"', "half of a surrogate pair"),
        ("\ud800", "half of a surrogate pair in row 2"),
        ("[" * 70 + "]" * 70, "at most 62 brackets"),
        ("1e400", "a double can hold"),
    ],
)
def test_what_is_no_json_is_refused_whole(db: Database, value: Any, reason: str) -> None:
    with pytest.raises(InvalidData, match="payload: ") as caught:
        db.stream("s").append([{"t": 1, "payload": {}}, {"t": 2, "payload": value}])
    assert reason in str(caught.value)
    assert caught.value.row == 2
    assert db.stream("s").count == 0


def test_arrow_gives_text_or_json(db: Database) -> None:
    stream = db.stream("s")
    text = pa.array(['{"a": 1}', None, "[ ]"])
    for kind in (text, json_column(text), text.dictionary_encode(), text.cast(pa.large_string())):
        stream.append(pa.table({"t": [1, 2, 3], "payload": kind}))
    assert [row[2] for row in rows(db)].count('{"a":1}') == 4
    claimed = pa.record_batch(
        [pa.array([9]), pa.array(["x"]), json_column(pa.array(["{"]))], schema=stream.schema
    )
    with pytest.raises(InvalidData, match=r"payload: expected JSON, found '\{' in row 1"):
        stream.append(claimed)
    with pytest.raises(SchemaMismatch, match="JSON comes as text"):
        stream.append(pa.table({"t": [1], "payload": [[1]]}))


def test_paths_are_found_everywhere(db: Database) -> None:
    db.stream("s").append(
        [
            {
                "t": n,
                "k": "ab"[n % 2],
                "payload": {"kind": "up" if n % 3 else "down", "v": {"x": n}},
            }
            for n in range(60)
        ]
    )
    down = "FROM s WHERE payload ->> '$.kind' = 'down'"
    assert rows(db, f"SELECT t, payload ->> '$.v.x' {down} LIMIT 2") == [(0, "0"), (3, "3")]
    assert rows(db, "SELECT json_extract(payload, '$.v') AS v FROM s WHERE t = 5") == [('{"x":5}',)]
    assert rows(db, "SELECT payload -> '$.v' -> '$.x' FROM s WHERE t = 5") == [("5",)]
    assert rows(db, "SELECT sum(CAST(payload ->> '$.v.x' AS BIGINT)) FROM s") == [(sum(range(60)),)]
    assert rows(db, "SELECT count(payload), count(*) FROM s WHERE payload IS NOT NULL") == [
        (60, 60)
    ]
    assert rows(db, "SELECT json_type(payload), count(*) FROM s GROUP BY 1") == [("OBJECT", 60)]
    windows = rows(
        db,
        "SELECT window_start, count(*) FROM TUMBLE(s, t, 20) WHERE payload ->> '$.kind' = 'down' "
        "GROUP BY window_start ORDER BY 1",
    )
    assert windows == [(0, 7), (20, 7), (40, 6)]
    matches = rows(
        db,
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.payload AS whole, "
        "A.payload ->> '$.v.x' AS x, LAST(B.t) AS until PATTERN (A B B) "
        "DEFINE A AS payload ->> '$.kind' = 'down', B AS payload ->> '$.kind' = 'up')",
    )
    assert len(matches) == 20
    assert [tuple(row) for row in matches[:2]] == [
        ('{"kind":"down","v":{"x":0}}', "0", 2), ('{"kind":"down","v":{"x":3}}', "3", 5),
    ]  # fmt: skip
    found = rows(db, 'SELECT payload FROM s WHERE payload = \'{"kind":"down","v":{"x":6}}\'')
    assert found == [('{"kind":"down","v":{"x":6}}',)]
    assert rows(db, "SELECT count(*) FROM s WHERE payload IN ('1', '2') OR payload IS NULL") == [
        (0,)
    ]


def test_statements_that_write(db: Database) -> None:
    db.sql("""INSERT INTO s VALUES (1, 'a', '{"x": [1, 2]}'), (2, 'b', NULL), (3, 'c', '"z"')""")
    db.sql(
        "INSERT INTO s SELECT t + 10, k, json_object('of', t, 'old', payload) FROM s WHERE t = 1"
    )
    db.sql("INSERT INTO s (t, payload) VALUES (20, $1)", ['{"p":1}'])
    assert [row[2] for row in rows(db)] == [
        '{"x":[1,2]}', None, '"z"', '{"of":1,"old":{"x":[1,2]}}', '{"p":1}',
    ]  # fmt: skip
    with pytest.raises(SqlError, match="payload"):
        db.sql("INSERT INTO s VALUES (30, 'a', '{x}')")
    db.sql("""UPDATE s SET payload = '{"new":  true}' WHERE t IN (1, 3)""")
    assert [row[2] for row in rows(db, "SELECT * FROM s WHERE t < 10")] == [
        '{"new":true}', None, '{"new":true}',
    ]  # fmt: skip
    with pytest.raises((SqlError, InvalidData), match="payload"):
        db.sql("UPDATE s SET payload = '[1' WHERE t = 1")
    db.sql("DELETE FROM s WHERE payload ->> '$.new' = 'true'")
    assert [row[0] for row in rows(db)] == [2, 11, 20]
    db.sql(
        "CREATE STREAM copy TIMESTAMP BY t AS SELECT t, payload, payload -> '$.of' AS part FROM s"
    )
    assert db.stream("copy").schema.field("part").type == JSON
    assert rows(db, "SELECT part FROM copy WHERE part IS NOT NULL") == [("1",)]
    db.sql("CREATE VIEW v AS SELECT t, payload ->> '$.p' AS p FROM s")
    assert rows(db, "SELECT * FROM v WHERE p = '1'") == [(20, "1")]


def test_columns_that_are_added(db: Database) -> None:
    db.stream("s").append([{"t": 1, "payload": {}}])
    db.sql("""ALTER STREAM s ADD COLUMN more JSON DEFAULT '{"n": 0}'""")
    db.stream("s").append([{"t": 2}])
    db.sql("ALTER STREAM s RENAME COLUMN payload TO body")
    assert rows(db, "SELECT body, more FROM s") == [("{}", '{"n":0}'), (None, '{"n":0}')]
    with pytest.raises((SqlError, InvalidArgument), match="more"):
        db.sql("ALTER STREAM s ADD COLUMN more2 JSON DEFAULT '{'")
    with pytest.raises(InvalidArgument, match="types only become wider"):
        db.sql("ALTER STREAM s ALTER COLUMN k TYPE JSON")


def test_what_needs_an_order_is_refused(db: Database) -> None:
    db.stream("s").append([{"t": 1, "payload": {"a": 1}}])
    with pytest.raises(UnsupportedType, match="'payload' is JSON, whose values have no order"):
        db.stream("s").create_index("payload")
    with pytest.raises((UnsupportedType, SqlError), match=r"JSON|payload"):
        db.sql("CREATE INDEX ON s (payload)")
    with pytest.raises(InvalidArgument, match="'payload', which is JSON"):
        db.create_stream(
            "u", db.stream("s").schema, time="t", options={"unique": "payload", "within": 5}
        )
    aggregate = db.stream("s").aggregate({"payload": "count"})
    assert aggregate == {"payload": {"count": 1}}
    for function in ("min", "max", "sum", "avg"):
        with pytest.raises(
            InvalidArgument, match=f"{function} needs .*JSON|{function} needs numbers"
        ):
            db.stream("s").aggregate({"payload": function})
    with pytest.raises((InvalidArgument, UnsupportedType)):
        chronicle.open(db.path.parent / "other").create_stream(
            "x", pa.schema([("j", JSON)]), time="j"
        )


def test_files_of_every_format(db: Database) -> None:
    stream = db.stream("s")
    body = (
        b'{"t": 1, "payload": {"a": [1, {"b": "x\\ny"}], "c": 1.0}, "k": "p"}\n'
        b'{"t": 2, "payload": "text"}\n{"t": 3, "payload": null}\n{"t": 4, "payload": 1e5}\n'
        b'{"t": 5, "p\\u0061yload": "123"}\n'
    )
    expected = ['{"a":[1,{"b":"x\\ny"}],"c":1.0}', '"text"', None, "1e5", '"123"']

    def read(data: bytes, format: str, **more: Any) -> pa.Table:
        layout = Layout(target=stream.event_schema, rename=more.pop("rename", None))
        return pa.Table.from_batches(
            EventReader(data, format, layout=layout, **more), stream.schema
        )

    lines = read(body, "ndjson")
    assert lines.column("payload").to_pylist() == expected
    array = b"[" + body.strip().replace(b"\n", b",\n") + b"]"
    assert read(array, "json").equals(lines)
    for format in ("ndjson", "json", "csv", "arrow", "parquet"):
        text = b"".join(encode(lines.to_batches(), lines.schema, format))
        assert read(text, format).equals(lines), format
    shown = [
        json.loads(line)
        for line in b"".join(encode(lines.to_batches(), lines.schema, "ndjson")).splitlines()
    ]
    assert shown[0]["payload"] == {"a": [1, {"b": "x\ny"}], "c": 1.0}
    assert shown[3]["payload"] == 1e5
    many = pa.concat_tables([lines] * 10).combine_chunks()  # the way of larger answers
    told = b"".join(encode(many.to_batches(), many.schema, "ndjson"))
    assert read(told, "ndjson").equals(many)
    other = read(b'{"t":1,"PayLoad":"5"}', "ndjson")
    assert other.column("payload").to_pylist() == ['"5"']
    renamed = read(b'{"t":1,"body":{"x":1}}', "ndjson", rename={"body": "payload"})
    assert renamed.column("payload").to_pylist() == ['{"x":1}']
    flat = read(b'{"t":1,"k":"a","payload":{"x":{"y":1}}}', "ndjson", flatten="_")
    assert flat.column("payload").to_pylist() == ['{"x":{"y":1}}']
    stored = pq.read_table(
        io.BytesIO(b"".join(encode(lines.to_batches(), lines.schema, "parquet")))
    )
    assert stored.column("payload").type == JSON


def test_bad_values_of_files_are_told_as_they_were_written(db: Database) -> None:
    stream = db.stream("s")
    bad: list[Any] = []
    for body, format in (
        (b'{"t":1,"payload":{"a":1}}\n{"t":2,"payload":[1,,2]}\n{"t":3,"payload":{"b":"\\ud800"}}\n'
         b'{"t":"x","payload":{"ok":1}}\n{"t":5,"payload":{"a":tru}}\n', "ndjson"),
        (b't,payload\r\n1,"{""a"":1}"\r\n2,"[1,,2]"\r\n3,\r\n', "csv"),
    ):  # fmt: skip
        layout = Layout(target=stream.event_schema)
        reader = EventReader(body, format, layout=layout, on_bad=bad.append)
        table = pa.Table.from_batches(reader, stream.schema)
        assert table.column("payload").to_pylist()[0] == '{"a":1}'
    assert [(row.row, row.column) for row in bad] == [
        (2, None), (3, None), (4, "t"), (5, None), (2, "payload"),
    ]  # fmt: skip
    assert "not valid JSON" in bad[0].reason
    assert bad[0].record == '{"t":2,"payload":[1,,2]}'
    assert bad[2].record == '{"t":"x","payload":{"ok":1}}'


def test_a_new_stream_of_a_file_is_told_its_type() -> None:
    layout = Layout(time="t", types={"payload": "json"}, time_format="ticks")
    body = b'{"t":1,"payload":{"a":1}}\n{"t":2,"payload":[]}\n'
    table = pa.Table.from_batches(EventReader(body, "ndjson", layout=layout))
    assert table.schema.field("payload").type == JSON
    assert table.column("payload").to_pylist() == ['{"a":1}', "[]"]


def test_stores_with_json_are_refused_by_releases_before(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = db.path
    db.close()
    monkeypatch.setattr(manifests, "MANIFEST_VERSION", 3)
    with pytest.raises(UnsupportedFormat, match="version 4"), chronicle.open(path) as database:
        database.stream("s")


@settings(max_examples=rounds(5, 25))
@given(st.data())
def test_random_values_come_back_through_every_change(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("random") / "store"
    codec = data.draw(st.sampled_from(["none", "lz4", "zstd"]))
    expected: list[tuple[int, Any]] = []
    schema = pa.schema([("t", pa.int64()), ("j", JSON), ("x", pa.float64())])
    with chronicle.open(path) as db:
        db.create_stream("s", schema, time="t", codec=codec, options={"leaf_bytes": 4096})
    for step in range(data.draw(st.integers(1, 4))):
        values = data.draw(st.lists(st.none() | VALUES, min_size=1, max_size=6))
        repeated = values * data.draw(st.sampled_from([1, 1, 400]))
        begin = data.draw(st.integers(0, 50)) if step else 1000
        fresh = [(begin + 3 * n, value) for n, value in enumerate(repeated)]
        with chronicle.open(path) as db:
            stream = db.stream("s")
            stream.append(
                [{"t": t, "j": None if v is None else json.dumps(v), "x": 1.0} for t, v in fresh]
            )
            expected += fresh
            for change in data.draw(
                st.lists(st.sampled_from(["flush", "seal", "compact"]), max_size=2)
            ):
                getattr(stream, change)()
            found = stream.scan().read_all()
            assert not db.check().problems
        expected.sort(key=lambda row: row[0])
        assert found.column("t").to_pylist() == [t for t, _ in expected]
        shown = [
            None if text is None else json.loads(text) for text in found.column("j").to_pylist()
        ]
        assert shown == [value for _, value in expected]
    with chronicle.open(path, mode="r") as db:
        assert db.stream("s").aggregate({"j": "count"}) == {
            "j": {"count": sum(value is not None for _, value in expected)}
        }
