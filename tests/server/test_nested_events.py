"""Events with JSON, lists and structs over REST: what goes in comes out as what it is."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

JSON = {"Content-Type": "application/json"}
LINES = {"Content-Type": "application/x-ndjson"}
ROWS: list[dict[str, Any]] = [
    {"t": 1, "payload": {"a": [1, {"b": "x\ny"}], "n": 12345678901234567890}, "x": [0.5, None],
     "at": {"k": 1, "name": "ü"}},
    {"t": 2, "payload": "text", "x": [], "at": None},
    {"t": 3, "payload": None, "x": None, "at": {"k": None, "name": None}},
]  # fmt: skip


@pytest.fixture(params=["process", "none"])
def either(request: Any, database: Any, serve_app: Callable[..., Any]) -> Any:
    """Bodies read by workers, or by the server itself."""
    return created(serve_app(database, isolation=request.param))


@pytest.fixture
def api(database: Any, serve_app: Callable[..., Any]) -> Any:
    return created(serve_app(database, isolation="process"))


def created(found: Any) -> Any:
    made = found.post(
        "/v1/streams",
        json={
            "name": "s",
            "time": "t",
            "schema": {"t": "bigint", "payload": "json", "x": "double[]",
                       "at": "struct(k bigint, name varchar)"},
        },
    )  # fmt: skip
    assert made.status_code == 201, made.text
    return found


def body_of(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def append(api: Any, body: bytes, kind: str = "ndjson", **params: Any) -> Any:
    return api.post("/v1/streams/s/events", content=body, params={"format": kind, **params})


def test_values_are_themselves_in_both_directions(either: Any) -> None:
    described = {c["name"]: c for c in either.get("/v1/streams/s").json()["schema"]}
    assert (described["payload"]["type"], described["payload"]["sql_type"]) == (
        "arrow.json",
        "json",
    )
    assert described["at"]["sql_type"] == "struct(k bigint, name varchar)"
    assert append(either, body_of(ROWS)).json()["appended"] == 3
    read = either.get("/v1/streams/s/events?format=ndjson")
    assert [json.loads(line) for line in read.content.splitlines()] == ROWS
    for format in ("csv", "arrow", "parquet", "json"):
        body = either.get(f"/v1/streams/s/events?format={format}").content
        assert either.post("/v1/query", json={"sql": "TRUNCATE s"}).status_code == 200
        stored = append(either, body, format)
        assert stored.json().get("appended") == 3, (format, stored.text)
        assert either.get("/v1/streams/s/events?format=json").json() == ROWS, format
    table = pq.read_table(io.BytesIO(either.get("/v1/streams/s/events?format=parquet").content))
    assert table.schema.field("payload").type == pa.json_()
    assert table.schema.field("x").type == pa.list_(pa.float64())


def test_queries_give_values(api: Any) -> None:
    append(api, body_of(ROWS))
    sql = "SELECT payload -> '$.a' AS a, payload ->> '$.a[1].b' AS b, at, x FROM s WHERE at.k = 1"
    answer = api.post("/v1/query", json={"sql": sql}).json()
    assert answer["types"] == ["json", "varchar", "struct(k bigint, name varchar)", "double[]"]
    row = answer["rows"][0]
    expected = {"a": [1, {"b": "x\ny"}], "b": "x\ny", "at": {"k": 1, "name": "ü"}, "x": [0.5, None]}
    found = dict(zip(answer["columns"], row, strict=True)) if isinstance(row, list) else row
    assert found == expected
    pretty = "SELECT CAST('{\"a\" :  [1,\n2]}' AS JSON) AS j"
    assert (
        api.post("/v1/query?format=ndjson", json={"sql": pretty}).content == b'{"j":{"a":[1,2]}}\n'
    )
    refused = api.post("/v1/query", json={"sql": "SELECT CAST('NaN' AS JSON) AS j"})
    assert refused.status_code == 400
    assert "expected JSON" in refused.text


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"t":1,"payload":{"a":1}}\n{"t":2,"payload":{"a":nope}}\n', "not valid JSON"),
        (b'{"t":1}\n{"t":2,"payload":["\\ud800"]}\n', "surrogate"),
        (b'{"t":1}\n{"t":2,"payload":' + b"[" * 63 + b"]" * 63 + b"}\n", "brackets"),
        (b'{"t":1}\n{"t":2,"x":["a"]}\n', "double[]"),
        (b'{"t":1}\n{"t":2,"at":{"z":1}}\n', "struct"),
    ],
)
def test_bad_values_are_named_with_their_row(api: Any, body: bytes, reason: str) -> None:
    answer = append(api, body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["errors"][0]["row"] == 2
    assert reason in answer.text
    assert api.get("/v1/streams/s").json()["count"] == 0
    kept = append(api, body, on_error="skip").json()
    assert (kept["appended"], kept["rejected"]) == (1, 1)


def test_cloud_events_and_line_protocol(api: Any) -> None:
    made = {
        "name": "c",
        "time": "time",
        "schema": {"time": "timestamp", "id": "varchar", "data": "json"},
    }
    assert api.post("/v1/streams", json=made).status_code == 201
    event = {"specversion": "1.0", "id": "7", "source": "a", "type": "b",
             "time": "2026-03-01T08:00:00Z", "data": {"x": [1, 2]}}  # fmt: skip
    kind = {"Content-Type": "application/cloudevents+json"}
    sent = api.post("/v1/streams/c/events", content=json.dumps(event).encode(), headers=kind)
    assert sent.status_code == 200, sent.text
    (row,) = api.get("/v1/streams/c/events?format=json").json()
    assert row == {"time": "2026-03-01T08:00:00", "id": "7", "data": {"x": [1, 2]}}
    line = b'm payload="{\\"a\\":1}" 5\n'
    sent = append(api, line, "lineprotocol")
    assert sent.status_code == 200, sent.text
    (row,) = api.get("/v1/streams/s/events?format=json&columns=payload").json()
    assert row == {"payload": {"a": 1}}


def test_acknowledged_lines(api: Any) -> None:
    sent = append(api, body_of(ROWS), ack="each")
    assert sent.status_code == 200
    assert '"appended":3' in sent.text.splitlines()[-1]
    assert api.get("/v1/streams/s/events?format=json").json() == ROWS
