"""Nested JSON made flat, and CloudEvents made records: by reference, and with broken text."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from chronicle.errors import ChronicleError, InvalidArgument, InvalidData, ResourceLimit
from chronicle.formats.chunks import BadRow
from chronicle.formats.jsontext import Form
from chronicle.formats.layout import Layout
from chronicle.formats.reader import EventReader
from chronicle.schema import StreamSchema

from ..rounds import rounds

KEYS = ["a", "b", "c", "a_b", "", "é", 'q"', "back\\", "sp ace", "\u2028"]
LEAVES: list[Any] = [0, -1.5, 1e300, True, False, None, "", "te,xt", '{"a": 1}', [], [1, {"a": 2}]]


def nested(random: random.Random, leaves: list[Any], depth: int = 0) -> dict[str, Any]:
    """An object of objects."""
    found: dict[str, Any] = {}
    for key in random.sample(random.choice([KEYS, KEYS[:4]]), random.randrange(5)):
        deeper = depth < 5 and random.random() < 0.4
        found[key] = nested(random, leaves, depth + 1) if deeper else random.choice(leaves)
    return found


def flat(record: dict[str, Any], separator: str, prefix: str = "") -> list[tuple[str, Any]]:
    """The members that are to come out, in order."""
    found: list[tuple[str, Any]] = []
    for key, value in record.items():
        if isinstance(value, dict):
            found += flat(value, separator, prefix + key + separator)
        else:
            found.append((prefix + key, value))
    return found


def text_of(record: Any, random: random.Random) -> str:
    """JSON with odd white space."""
    spaces = random.choice([(", ", ": "), (",", ":"), (" ,\t", " :  ")])
    return json.dumps(record, separators=spaces, ensure_ascii=random.random() < 0.5)


def test_random_records_against_a_reference() -> None:
    """A record whose names meet is bad, all others come out flat, in lines and in arrays."""
    seeded = random.Random(5)
    refused = 0
    for _ in range(rounds(60, 3000)):
        records = [{"t": n, "n": nested(seeded, [7])} for n in range(seeded.randrange(1, 4))]
        separator = seeded.choice(["_", "_", "::", "a"])
        pairs = [flat(record, separator) for record in records]
        wanted = [dict(each) for each in pairs if len(dict(each)) == len(each)]
        texts = [text_of(record, seeded) for record in records]
        for body, format in (("\n".join(texts), "ndjson"), (f"[{','.join(texts)}]", "json")):
            bad: list[BadRow] = []
            layout = Layout(time="t", time_format="ticks")
            reader = EventReader(
                body.encode(), format, layout=layout, flatten=separator, on_bad=bad.append
            )
            rows = [row for batch in reader for row in batch.to_pylist()]
            assert [{k: v for k, v in row.items() if v is not None} for row in rows] == wanted
            assert all("occurs twice" in row.reason for row in bad)
            assert len(rows) + len(bad) == len(records)
            refused += len(bad)
    assert refused


@pytest.mark.parametrize(
    ("members", "name"),
    [
        ('"n":{"b":1},"n":{"c":2}', "n"),
        ('"n":{"b":1},"n":null', "n"),
        ('"n":{},"n":{}', "n"),
        ('"n":{"b":1,"b":2}', "n_b"),
        ('"n":{"o":{"b":1},"o":{}}', "n_o"),
        ('"n":1,"n":{"b":2}', "n"),
    ],
)
def test_an_object_that_occurs_twice_is_refused(members: str, name: str) -> None:
    body = f'{{"t":1,{members}}}\n{{"t":2,"n":{{"b":3}}}}\n{{"t":3,"n":null}}'
    bad: list[BadRow] = []
    reader = EventReader(
        body.encode(), "ndjson", layout=Layout(time="t", time_format="ticks"), flatten="_",
        on_bad=bad.append,
    )  # fmt: skip
    rows = [(row["t"], row["n_b"]) for batch in reader for row in batch.to_pylist()]
    assert rows == [(2, 3), (3, None)]
    assert [row.reason for row in bad] == [f"the field {name!r} occurs twice"]


def test_text_that_is_broken_never_becomes_a_row() -> None:
    seeded = random.Random(6)
    signs = b'{}[]",:\\ \n0-.eatrufl\x00\xff'
    event = {"specversion": "1.0", "id": "1", "time": "2026-01-01", "data": {"x": {"y": 1}}}
    refused = 0
    for _ in range(rounds(60, 6000)):
        record = (
            event if seeded.random() < 0.4 else {"time": "2026-01-01", "n": nested(seeded, LEAVES)}
        )
        text = bytearray(text_of(record, seeded).encode())
        for _ in range(seeded.randrange(1, 4)):
            at = seeded.randrange(len(text) + 1)
            match seeded.randrange(3):
                case 0:
                    text[at : at + 1] = bytes([seeded.choice(signs)])
                case 1:
                    text[at:at] = bytes([seeded.choice(signs)])
                case _:
                    del text[at : at + 1]
        broken = bytes(text)
        if b"\n" in broken or is_json(broken):
            continue
        for format, flatten in (("ndjson", "_"), ("json", "_"), ("cloudevents", None)):
            for types in ({}, {"n": "json"}):
                layout = Layout(time="time", types=types)
                try:
                    rows = sum(
                        batch.num_rows
                        for batch in EventReader(broken, format, layout=layout, flatten=flatten)
                    )
                except ChronicleError:
                    rows = 0
                assert not rows, (broken, format, types)
                refused += 1
    assert refused


def is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def test_names_that_grow_too_long() -> None:
    deep = b'{"t":1,' + b'"k":{' * 61 + b'"k":1' + b"}" * 62
    (batch,) = EventReader(deep, "ndjson", layout=Layout(time="t"), flatten="_")
    assert batch.schema.names == ["t", "_".join("k" * 62)]
    name = b"n" * 40_000
    for body, reason in (
        (b'{"t":1,"%b":{"%b":{"x":1}}}' % (name, name), "names of nested members are longer"),
        (b'{"t":1,"%b":{%b}}' % (name, b",".join(b'"%d":1' % n for n in range(900))), "repeat too"),
    ):
        with pytest.raises(ResourceLimit, match=reason):
            list(EventReader(body, "ndjson", layout=Layout(time="t"), flatten="_"))


@pytest.mark.parametrize("separator", ["", '"', "\\", " ", "é", "_" * 9, "\n"])
def test_what_cannot_join_names(separator: str) -> None:
    with pytest.raises(InvalidArgument, match="flatten"):
        Form(separator)


# ------------------------------------------------------------------------------- through a reader

SCHEMA = StreamSchema(
    pa.schema(
        [pa.field("at", pa.timestamp("ms"), False), ("id", pa.string()), ("type", pa.string()),
         ("x", pa.float64()), ("pos_lat", pa.decimal128(20, 10))]
    ),
    "at",
)  # fmt: skip


def read(text: str, format: str, schema: StreamSchema = SCHEMA, **more: Any) -> list[Any]:
    layout = Layout(target=schema)
    batches = list(EventReader(text.encode(), format, layout=layout, **more))
    return pa.Table.from_batches(batches, schema.arrow).to_pylist()


def event(**more: Any) -> dict[str, Any]:
    said = {"specversion": "1.0", "id": "7", "source": "/s", "type": "reading"}
    return {**said, "time": "2026-01-02T03:04:05Z", "datacontenttype": "application/json", **more}


def test_nested_json_is_read() -> None:
    text = '{"at":"2026-01-01","pos":{"lat":1.0000000001}}\n{"at":"2026-01-02","pos":{}}\n'
    told = read(text, "ndjson", flatten="_")
    assert [str(row["pos_lat"]) for row in told] == ["1.0000000001", "None"]
    array = "[" + text.replace("}\n{", "},\n{") + "]"
    assert read(array, "json", flatten="_") == told
    with pytest.raises(InvalidData, match="line 3: the field"):
        read(text + '{"at":"2026-01-03","pos":{"lat":1},"pos_lat":2}\n', "ndjson", flatten="_")
    with pytest.raises(InvalidArgument, match="flatten is for json and ndjson"):
        read("at\n2026-01-01\n", "csv", flatten="_")


def test_cloud_events_are_read() -> None:
    one = read(json.dumps(event(data={"x": 1.5, "id": "of data"})), "cloudevents")
    assert (one[0]["x"], one[0]["id"], one[0]["type"]) == (1.5, "of data", "reading")
    assert one[0]["at"].isoformat() == "2026-01-02T03:04:05"
    nested = [event(data={"pos": {"lat": 2.5}}), event(id="8", traceparent="00-1", data={"x": 2})]
    several = read(json.dumps(nested), "cloudevents", flatten="_")
    assert [(row["id"], row["x"]) for row in several] == [("7", None), ("8", 2.0)]
    assert str(several[0]["pos_lat"]) == "2.5000000000"
    with pytest.raises(Exception, match="nosuch"):
        read(json.dumps(event(data={"nosuch": 1})), "cloudevents")
    with pytest.raises(Exception, match="data"):
        read(json.dumps(event(data=[1, 2])), "cloudevents")


def test_an_event_without_a_time_has_the_present() -> None:
    bare = {name: value for name, value in event().items() if name != "time"}
    told = read(json.dumps([bare, event(data={"x": 1})]), "cloudevents")
    assert told[0]["at"] > told[1]["at"]
    own = read(json.dumps({**bare, "data": {"at": "2001-01-01"}}), "cloudevents")
    assert own[0]["at"].year == 2001
    counted = StreamSchema(pa.schema([pa.field("n", pa.int64(), False)]), "n")
    assert read(json.dumps({**bare, "data": {"n": 5}}), "cloudevents", counted) == [{"n": 5}]
    with pytest.raises(InvalidData):
        read(json.dumps(bare), "cloudevents", counted)


def test_a_column_data_keeps_it_whole() -> None:
    columns = [pa.field("time", pa.timestamp("us"), False), ("data", pa.string())]
    schema = StreamSchema(pa.schema(columns), "time")
    told = read(json.dumps([event(data={"x": [1]}), event(data="text")]), "cloudevents", schema)
    assert json.loads(told[0]["data"]) == {"x": [1]}
    assert told[1]["data"] == "text"
    columns[1] = ("data", pa.binary())
    schema = StreamSchema(pa.schema(columns), "time")
    assert read(json.dumps(event(data_base64="AQI=")), "cloudevents", schema)[0]["data"] == b"\1\2"


def test_a_stream_can_be_made_of_cloud_events() -> None:
    layout = Layout(time="time")
    reader = EventReader(
        json.dumps([event(data={"x": 1, "pos": {"lat": 2}})]).encode(), "cloudevents",
        layout=layout, flatten="_",
    )  # fmt: skip
    (batch,) = reader
    names = {"id", "source", "type", "time", "datacontenttype", "x", "pos_lat"}
    assert set(batch.schema.names) == names
