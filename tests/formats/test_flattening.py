"""Nested JSON made flat, and CloudEvents made records: by reference, and with broken text."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import InvalidArgument, InvalidData, ResourceLimit
from chronicle.formats import EventReader, Layout
from chronicle.formats.flatscan import rewrite
from chronicle.formats.flattening import Flattened, Unwrapped
from chronicle.schema import StreamSchema

from ..rounds import rounds

KEYS = ["a", "b", "c", "a_b", "", "é", 'q"', "back\\", "sp ace", "\u2028"]
LEAVES: list[Any] = [0, -1.5, 1e300, True, False, None, "", "te,xt", '{"a": 1}', [], [1, {"a": 2}]]


def nested(random: random.Random, depth: int = 0) -> dict[str, Any]:
    """An object of objects."""
    found: dict[str, Any] = {}
    for key in random.sample(KEYS, random.randrange(5)):
        deeper = depth < 5 and random.random() < 0.4
        found[key] = nested(random, depth + 1) if deeper else random.choice(LEAVES)
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


def pairs(text: bytes) -> list[tuple[str, Any]]:
    return [
        (key, dict(value) if isinstance(value, tuple) else value)
        for key, value in json.loads(text, object_pairs_hook=tuple)
    ]


def plain(value: Any) -> Any:
    """Objects in arrays as `pairs` gives them."""
    if isinstance(value, list):
        return [tuple(item.items()) if isinstance(item, dict) else item for item in value]
    return value


def test_random_records_against_a_reference() -> None:
    seeded = random.Random(5)
    for _ in range(rounds(20, 1500)):
        records = [nested(seeded) for _ in range(seeded.randrange(1, 4))]
        separator = seeded.choice(["_", ".", "::", "a"])
        texts = [text_of(record, seeded) for record in records]
        wanted = [[(k, plain(v)) for k, v in flat(record, separator)] for record in records]
        told = Flattened(separator)("\n".join(texts).encode(), True)
        assert [pairs(line) for line in told.split(b"\n")] == wanted
        told = Flattened(separator)(
            "".join(json.dumps(r, indent=1) for r in records).encode(), False
        )
        decoder, rest, found = json.JSONDecoder(object_pairs_hook=tuple), told.decode(), []
        while rest:
            value, end = decoder.raw_decode(rest)
            found.append(list(value))
            rest = rest[end:]
        assert [[(k, plain(v)) for k, v in flat(r, separator)] for r in records] == [
            [(k, dict(v) if isinstance(v, tuple) else v) for k, v in each] for each in found
        ]


def is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def test_what_is_no_json_does_not_become_any() -> None:
    seeded = random.Random(6)
    signs = b'{}[]",:\\ \n0-.eatrufl\x00\xff'
    event = {"specversion": "1.0", "id": "1", "time": "2026-01-01", "data": {"x": {"y": 1}}}
    schema = pa.schema([pa.field("t", pa.timestamp("us"), False), ("id", pa.string())])
    unwrapped = [Unwrapped(StreamSchema(schema, "t"), "t", None), Unwrapped(None, "t", "_")]
    refused = 0
    for _ in range(rounds(40, 6000)):
        record = event if seeded.random() < 0.4 else nested(seeded)
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
        for form in (Flattened("_"), *unwrapped):
            for lines in (True, False):
                told = form(broken, lines)
                assert not (lines and told.count(b"\n") != broken.count(b"\n"))
                if b"\n" not in broken and not is_json(broken):
                    refused += 1
                    assert not is_json(told), (broken, told)
    assert refused


def test_nothing_is_written_beyond_the_room() -> None:
    """Whatever room there is, what is written lies inside of it, and more room gives the same."""
    seeded = random.Random(7)
    separator = np.frombuffer(b"__", np.uint8)
    none, ends = np.zeros(0, np.uint8), np.zeros(1, np.int64)
    for _ in range(rounds(10, 300)):
        text = np.frombuffer(text_of(nested(seeded), seeded).encode(), np.uint8)
        whole = Flattened("__")(text.tobytes(), True)
        for room in range(len(whole) + 2):
            out = np.full(len(whole) + 64, 7, np.uint8)
            scratch = np.empty(1 << 12, np.uint8), np.empty(64, np.int64), np.empty(1, np.uint8)
            written = rewrite(
                text, True, separator, none, ends, none, ends, False, False, none, none, *scratch,
                out[:room],
            )  # fmt: skip
            assert (out[room:] == 7).all()
            assert (written == len(whole)) if room >= len(whole) else (written == -2)


def test_names_that_grow_too_long() -> None:
    deep = b'{"k":' * 62 + b"1" + b"}" * 62
    assert json.loads(Flattened("_")(deep, True)) == {"_".join("k" * 62): 1}
    deeper = b'{"k":' * 200 + b"1" + b"}" * 200
    assert Flattened("_")(deeper, True) == deeper  # is refused as too deep, later
    name = b"n" * 40_000
    with pytest.raises(ResourceLimit, match="names of nested members"):
        Flattened("_")(b'{"%b":{"%b":{}}}' % (name, name), True)
    many = b",".join(b'"%d":1' % n for n in range(20_000))
    with pytest.raises(ResourceLimit, match="repeat too much"):
        Flattened("_")(b'{"%b":{%b}}' % (name, many), True)
    unclosed = b"{" * (1 << 20)
    assert Flattened("_")(unclosed, True) == Flattened("_")(unclosed, False) == unclosed


@pytest.mark.parametrize("separator", ["", '"', "\\", " ", "é", "_" * 9, "\n"])
def test_what_cannot_join_names(separator: str) -> None:
    with pytest.raises(InvalidArgument, match="flatten"):
        Flattened(separator)


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
