"""CloudEvents in their three modes, and nested JSON, on appends and ingests."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

EVENTS = "/v1/streams/pumps/events"
EVENT = {
    "specversion": "1.0", "id": "7", "source": "/pumps/1", "type": "reading",
    "time": "2026-01-02T03:04:05Z", "data": {"pressure": 4.25},
}  # fmt: skip
ONE = {"content-type": "application/cloudevents+json; charset=utf-8"}
BATCH = {"content-type": "application/cloudevents-batch+json"}
BINARY = {
    "ce-specversion": "1.0", "ce-id": "8", "ce-source": "/caf%C3%A9", "ce-type": "reading",
    "ce-time": "2026-01-02T03:04:06Z", "content-type": "application/json",
}  # fmt: skip


@pytest.fixture
def api(database: Any, serve_app: Any) -> Any:
    database.sql(
        "CREATE STREAM pumps (at TIMESTAMP, id VARCHAR, source VARCHAR, pressure DOUBLE, "
        "pos_x DOUBLE) TIMESTAMP BY at"
    )
    return serve_app(database)


def stored(api: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(EVENTS).json()
    return found


def test_an_event_and_a_batch(api: Any) -> None:
    one = api.post(EVENTS, content=json.dumps(EVENT), headers=ONE)
    assert (one.status_code, one.json()["appended"]) == (200, 1), one.text
    many = [EVENT | {"id": str(n), "data": {"pressure": n, "pos": {"x": 1.5}}} for n in range(3)]
    batch = api.post(EVENTS, json=many, headers=BATCH, params={"flatten": "_"})
    assert batch.json()["appended"] == 3, batch.text
    rows = stored(api)
    assert rows[0] == {
        "at": "2026-01-02T03:04:05", "id": "7", "source": "/pumps/1", "pressure": 4.25,
        "pos_x": None,
    }  # fmt: skip
    assert [(row["id"], row["pressure"], row["pos_x"]) for row in rows[1:]] == [
        ("0", 0.0, 1.5), ("1", 1.0, 1.5), ("2", 2.0, 1.5),
    ]  # fmt: skip


def test_binary_mode(api: Any) -> None:
    answer = api.post(EVENTS, content=b' {"pressure": 1.5} ', headers=BINARY)
    assert answer.status_code == 200, answer.text
    packed = BINARY | {"content-encoding": "gzip", "ce-id": "9"}
    answer = api.post(EVENTS, content=gzip.compress(b'{"pressure": 2.5}'), headers=packed)
    assert answer.status_code == 200, answer.text
    assert api.post(EVENTS, content=b"", headers=BINARY | {"ce-id": "10"}).status_code == 200
    found = [(row["id"], row["source"], row["pressure"]) for row in stored(api)]
    assert found == [("8", "/café", 1.5), ("9", "/café", 2.5), ("10", "/café", None)]


def test_data_of_other_types(api: Any, database: Any) -> None:
    database.sql("CREATE STREAM log (time TIMESTAMP, data VARCHAR) TIMESTAMP BY time")
    log = "/v1/streams/log/events"
    for data, kind in ((b'{"a": [1.50]}', "application/vnd.x+json"), (b'say "hi"', "text/plain")):
        answer = api.post(log, content=data, headers=BINARY | {"content-type": kind})
        assert answer.status_code == 200, answer.text
    base = api.post(log, content=b"\xff\0", headers=BINARY | {"content-type": "image/png"})
    assert base.status_code == 200, base.text
    found = [row["data"] for row in api.get(log).json()]
    assert found == ['{"a": [1.50]}', 'say "hi"', "/wA="]


@pytest.mark.parametrize(
    "wrong",
    [
        {"ce-id": ""},
        {"ce-specversion": "0.3"},
        {"ce-da-ta": "x"},
        {"ce-data": "x"},
        {"ce-source": "%ff"},
        {"ce-time": "soon"},
        {"content-type": "text/plain"},
    ],
)
def test_what_is_no_event(api: Any, wrong: dict[str, str]) -> None:
    answer = api.post(EVENTS, content=b"{", headers=BINARY | wrong)
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] in ("invalid-data", "schema-mismatch")
    assert stored(api) == []


def test_the_same_event_once(api: Any) -> None:
    keyed = BINARY | {"idempotency-key": "k"}
    body = b'{"pressure": 1.5}'
    assert api.post(EVENTS, content=body, headers=keyed).status_code == 200
    again = api.post(EVENTS, content=body, headers=keyed)
    assert again.headers["idempotency-replayed"] == "true"
    other = api.post(EVENTS, content=body, headers=keyed | {"ce-id": "other"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-mismatch")
    assert len(stored(api)) == 1


def test_nested_json(api: Any) -> None:
    rows = [{"at": "2026-01-01", "pos": {"x": n}} for n in range(2)]
    lines = "\n".join(map(json.dumps, rows))
    sent = api.post(EVENTS, json=rows, params={"flatten": "_"})
    assert sent.json()["appended"] == 2, sent.text
    sent = api.post(EVENTS, content=lines, params={"flatten": "_", "format": "ndjson"})
    assert sent.json()["appended"] == 2, sent.text
    assert [row["pos_x"] for row in stored(api)] == [0.0, 1.0, 0.0, 1.0]
    for params, status in (
        ({}, 400),
        ({"flatten": "_", "format": "csv"}, 400),
        ({"flatten": '"'}, 400),
        ({"flatten": "_", "ack": "each", "format": "ndjson"}, 400),
    ):
        answer = api.post(EVENTS, json=rows, params=params)
        assert answer.status_code == status, (params, answer.text)
    assert len(stored(api)) == 4


def test_ingests_take_both(api: Any, database: Any) -> None:
    rows = [{"at": "2026-01-01T00:00:00", "pos": {"x": n, "deep": {"y": "a"}}} for n in range(2)]
    found = api.post("/v1/ingest/preview", json=rows, params={"flatten": "."}).json()
    assert [column["name"] for column in found["columns"]] == ["at", "pos.x", "pos.deep.y"]
    params = {"stream": "new", "create": True, "time": "at", "flatten": "."}
    assert api.post("/v1/ingest", json=rows, params=params).json()["appended"] == 2
    events = [EVENT | {"id": str(n), "traceparent": "0"} for n in range(2)]
    found = api.post("/v1/ingest/preview", json=events, headers=BATCH).json()
    assert (found["format"], found["time"]) == ("cloudevents", "time")
    params = {"stream": "events", "create": True, "time": "time"}
    done = api.post("/v1/ingest", json=events, headers=BATCH, params=params)
    assert done.json()["appended"] == 2, done.text
    assert database.sql("SELECT id, pressure FROM events").fetchall() == [("0", 4.25), ("1", 4.25)]
