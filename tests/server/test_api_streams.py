"""Streams over HTTP: made, described, indexed, written in transactions, dropped, told of."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.tests.patience import wait_until

from .flights import ARROW, SPEC, TABLE_SCHEMA, append, as_arrow, events, rows_of


def test_streams_are_made_described_listed_and_dropped(api: Any) -> None:
    made = api.post("/v1/streams", json={**SPEC, "name": "other"})
    assert made.status_code == 201
    assert made.headers["location"] == "/v1/streams/other"
    found = api.get("/v1/streams/other").json()
    assert found == made.json()
    assert found["time"] == "timestamp"
    assert [column["name"] for column in found["schema"]] == TABLE_SCHEMA.names
    assert found["schema"][0] == {
        "name": "timestamp",
        "type": "timestamp[us]",
        "sql_type": "timestamp",
        "nullable": False,
    }
    assert (found["count"], found["time_range"], found["indexes"]) == (0, None, [])
    message = pa.py_buffer(base64.b64decode(found["arrow_schema"]))
    assert pa.ipc.read_schema(message).names == TABLE_SCHEMA.names
    assert [s["name"] for s in api.get("/v1/streams").json()["streams"]] == ["flights", "other"]
    assert api.delete("/v1/streams/other").status_code == 204
    assert api.get("/v1/streams/other").json()["code"] == "stream-not-found"
    assert api.delete("/v1/streams/other").status_code == 404


def test_events_are_deleted(api: Any) -> None:
    rows = [
        {"timestamp": f"2018-08-01T0{hour}:00:00", "icao24": who, "altitude": 1.0, "squawk": hour}
        for hour in range(6)
        for who in ("a", "b")
    ]
    append(api, rows)

    def delete(**spec: Any) -> Any:
        return api.post("/v1/streams/flights/delete", json=spec)

    assert delete(where="icao24 = 'a' AND squawk > 3").json() == {"deleted": 2}
    assert delete(start="2018-08-01T01:00:00", end="2018-08-01T02:00:00").json() == {"deleted": 2}
    assert delete(where="squawk = 2", end=1533092400, precision="s").json() == {"deleted": 2}
    assert delete(where="squawk = 2").json() == {"deleted": 0}
    assert [row["squawk"] for row in events(api)] == [0, 0, 3, 3, 4, 5]
    assert api.get("/v1/streams/flights").json()["stats"]["deleted_events"] == 6
    for spec, status, code in (
        ({}, 400, "invalid-argument"),
        ({"where": "nothing = 1"}, 400, "sql-error"),
        ({"start": "soon"}, 400, "invalid-argument"),
        ({"wher": "true"}, 422, "invalid-request"),
    ):
        answer = delete(**spec)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    query = {"sql": "DELETE FROM flights WHERE squawk = ?", "params": [3]}
    assert api.post("/v1/query", json=query).json()["rows"] == [{"deleted": 2}]
    assert api.get("/v1/query", params={"q": "DELETE FROM flights"}).status_code >= 400
    assert delete(where="true").json() == {"deleted": 4}
    assert api.post("/v1/streams/other/delete", json={"where": "true"}).status_code == 404


def test_events_are_updated(api: Any) -> None:
    append(api, [{"timestamp": f"2018-08-01T0{h}:00:00", "squawk": h} for h in range(6)])

    def update(**spec: Any) -> Any:
        return api.post("/v1/streams/flights/update", json=spec)

    done = update(set={"squawk": "squawk * 10", "icao24": "'new'"}, where="squawk > 3")
    assert done.json() == {"updated": 2}
    done = update(set={"squawk": "-1"}, end=1533085200, precision="s")
    assert done.json() == {"updated": 1}
    assert [row["squawk"] for row in events(api)] == [-1, 1, 2, 3, 40, 50]
    for spec, status, code in (
        ({"set": {"squawk": "1"}}, 400, "invalid-argument"),
        ({"where": "true"}, 422, "invalid-request"),
        ({"set": {}, "where": "true"}, 400, "invalid-argument"),
        ({"set": {"squawk": "nothing"}, "where": "true"}, 400, "sql-error"),
        ({"set": {"timestamp": "now()"}, "where": "true"}, 400, "sql-error"),
    ):
        answer = update(**spec)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    query = {"sql": "UPDATE flights SET squawk = ? WHERE squawk = 40", "params": [4]}
    assert api.post("/v1/query", json=query).json()["rows"] == [{"updated": 1}]
    assert api.get("/v1/query", params={"q": "UPDATE flights SET squawk = 1"}).status_code >= 400


def test_making_a_stream_twice(api: Any) -> None:
    assert api.post("/v1/streams", json=SPEC).json()["code"] == "stream-exists"
    again = api.post("/v1/streams", json={**SPEC, "if_not_exists": True})
    assert again.status_code == 200
    wider = {**SPEC, "schema": {**SPEC["schema"], "x": "double"}, "if_not_exists": True}
    assert api.post("/v1/streams", json=wider).status_code == 409


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"time": "when"}, 400, "invalid-argument"),
        ({"time": "icao24"}, 400, "unsupported-type"),
        ({"schema": {"timestamp": "no_such_type"}}, 400, "invalid-argument"),
        ({"schema": {}}, 400, "invalid-argument"),
        ({"schema": None}, 400, "invalid-argument"),
        ({"arrow_schema": "AAAA"}, 400, "invalid-argument"),
        ({"schema": None, "arrow_schema": "AAAA"}, 400, "invalid-argument"),
        ({"codec": "brotli"}, 400, "invalid-argument"),
        ({"retention": "a while"}, 400, "invalid-argument"),
        ({"name": ""}, 400, "invalid-argument"),
        ({"colour": "red"}, 422, "invalid-request"),
        ({"name": None}, 422, "invalid-request"),
        ({"schema": [{"name": "timestamp"}]}, 422, "invalid-request"),
    ],
)
def test_streams_that_cannot_be(api: Any, change: Any, status: int, code: str) -> None:
    response = api.post("/v1/streams", json={**SPEC, "name": "x", **change})
    assert (response.status_code, response.json()["code"]) == (status, code), response.text
    assert [s["name"] for s in api.get("/v1/streams").json()["streams"]] == ["flights"]


def test_other_ways_to_give_a_schema(api: Any) -> None:
    listed = [
        {"name": "t", "type": "BIGINT"},
        {"name": "price", "type": "decimal(10,2)", "nullable": False},
        {"name": "seen", "type": "timestamp[ms, tz=UTC]"},
    ]
    made = api.post("/v1/streams", json={"name": "a", "time": "t", "schema": listed}).json()
    assert [column["type"] for column in made["schema"]] == [
        "int64",
        "decimal128(10, 2)",
        "timestamp[ms, tz=UTC]",
    ]
    assert [column["nullable"] for column in made["schema"]] == [False, False, True]
    arrow = base64.b64encode(TABLE_SCHEMA.serialize()).decode()
    spec = {"name": "b", "time": "timestamp", "arrow_schema": arrow}
    assert api.post("/v1/streams", json=spec).json()["arrow_schema"] == arrow


def test_indexes(api: Any) -> None:
    append(api, rows_of(1000))
    made = api.post("/v1/streams/flights/indexes/alti%74ude")
    assert made.status_code == 201, made.text
    assert [index["attribute"] for index in made.json()["indexes"]] == ["altitude"]
    assert api.get("/v1/streams/flights/indexes").json() == made.json()
    again = api.post("/v1/streams/flights/indexes/altitude")
    assert (again.status_code, again.json()["code"]) == (409, "index-exists")
    assert api.post("/v1/streams/flights/indexes/nothing").status_code == 404
    assert api.delete("/v1/streams/flights/indexes/altitude").status_code == 204
    gone = api.delete("/v1/streams/flights/indexes/altitude")
    assert (gone.status_code, gone.json()["code"]) == (404, "index-not-found")
    later = api.post("/v1/streams/flights/indexes/squawk", params={"wait": "false"})
    assert later.status_code == 202


def test_a_transaction_over_http(api: Any) -> None:
    base = "/v1/streams/flights/transactions/job-1"
    headers = {"content-type": ARROW}
    for part in range(3):
        staged = api.put(
            f"{base}/parts/{part}-0",
            content=as_arrow(rows_of(10, first=part * 10)),
            headers=headers,
        )
        assert staged.json()["rows"] == 10
    assert events(api) == []
    done = api.post(f"{base}/commit", json={"parts": ["0-0", "1-0", "2-0"]}).json()
    assert (done["appended"], done["count"], done["replayed"]) == (30, 30, False)
    assert api.post(f"{base}/commit", json={"parts": ["0-0"]}).json()["replayed"] is True
    assert events(api) == rows_of(30)
    late = api.put(f"{base}/parts/9-0", content=as_arrow(rows_of(1)), headers=headers)
    assert (late.status_code, late.json()["code"]) == (409, "transaction-ended")
    bad = api.put(
        "/v1/streams/flights/transactions/job-2/parts/0",
        content=as_arrow(rows_of(100))[:-20],
        headers=headers,
    )
    assert bad.json()["code"] == "invalid-data"
    assert api.delete("/v1/streams/flights/transactions/job-2").status_code == 204
    half = api.post(f"{base}/commit", json={"parts": [], "app_id": "x"})
    assert half.json()["code"] == "invalid-argument"


def test_a_transaction_that_replaces_a_range(api: Any) -> None:
    base = "/v1/streams/flights/transactions/{}"
    headers = {"content-type": ARROW}

    def put(job: str, rows: list[dict[str, Any]]) -> None:
        path = f"{base.format(job)}/parts/0"
        assert api.put(path, content=as_arrow(rows), headers=headers).status_code == 200

    def commit(job: str, **more: Any) -> Any:
        return api.post(f"{base.format(job)}/commit", json={"parts": ["0"], **more}).json()

    put("a", rows_of(30))
    commit("a")
    put("b", rows_of(3, first=12))
    span = {"start": rows_of(1, 10)[0]["timestamp"], "end": rows_of(1, 20)[0]["timestamp"]}
    for wrong in (
        {"replace": {}},
        {"replace": span, "truncate": True},
        {"replace": {"start": span["end"]}},
        {"replace": {"start": span["end"], "end": span["start"]}},
        {"replace": {"start": "yesterday"}},
    ):
        assert commit("b", **wrong)["code"] == "invalid-argument", wrong
    assert commit("b", replace={**span, "from": 1})["status"] == 422
    assert events(api) == rows_of(30)
    done = commit("b", replace=span)
    assert (done["appended"], done["late"], done["count"]) == (3, 0, 23)
    assert events(api) == [*rows_of(10), *rows_of(3, 12), *rows_of(10, 20)]


def test_health_readiness_and_metrics(api: Any) -> None:
    assert api.get("/healthz").json()["status"] == "ok"
    assert api.request("HEAD", "/healthz").status_code == 200
    ready = api.get("/readyz").json()
    assert (ready["status"], ready["mode"], ready["streams"]) == ("ready", "rw", 1)
    append(api, rows_of(10))
    events(api)
    rows_sent = 'chronicle_result_rows_total{format="json"} 10.0'
    wait_until(lambda: rows_sent in api.get("/metrics").text)  # once the read's thread has ended
    text = api.get("/metrics").text
    for line in (
        'chronicle_appended_events_total{format="ndjson"} 10.0',
        'chronicle_http_requests_total{method="POST",route="/v1/streams/{stream}/events",'
        'status="200"} 1.0',
        rows_sent,
        "chronicle_store_events 10.0",
        "chronicle_store_streams 1.0",
    ):
        assert line in text, line
    assert "flights" not in text


def test_a_store_for_reading_is_served_too(tmp_path: Path, serve_app: Callable[..., Any]) -> None:
    with chronicle.open(tmp_path / "store") as writer:
        api = serve_app(writer)
        api.post("/v1/streams", json=SPEC)
        append(api, rows_of(5))
        with chronicle.open(tmp_path / "store", mode="r") as reader:
            other = serve_app(reader)
            assert len(events(other)) == 5
            refused = append(other, rows_of(1))
            assert (refused.status_code, refused.json()["code"]) == (403, "read-only-store")
            assert other.delete("/v1/streams/flights").json()["code"] == "read-only-store"


def test_columns_have_defaults(api: Any) -> None:
    columns = [
        {"name": "t", "type": "timestamp"},
        {"name": "x", "type": "bigint", "nullable": False, "default": -5},
        {"name": "big", "type": "ubigint", "default": "18446744073709551615"},
        {"name": "y", "type": "double", "default": 1.5},
        {"name": "name", "type": "varchar", "default": "none"},
        {"name": "on", "type": "boolean", "default": False},
        {"name": "day", "type": "date", "default": "2018-08-01"},
        {"name": "at", "type": "timestamp", "default": "2018-08-01T05:00:00"},
        {"name": "fuel", "type": "decimal(10,2)", "default": "0.10"},
        {"name": "no", "type": "varchar"},
    ]
    made = api.post("/v1/streams", json={"name": "d", "time": "t", "schema": columns})
    assert made.status_code == 201, made.text
    assert "defaults" in made.json()
    sent = api.post("/v1/streams/d/events", json=[{"t": "2020-01-01"}, {"t": "2020-01-02", "x": 1}])
    assert sent.status_code == 200, sent.text
    answer = api.post(
        "/v1/query", json={"sql": "SELECT * EXCLUDE (t), CAST(fuel AS VARCHAR) AS f FROM d"}
    )
    first, second = answer.json()["rows"]
    assert (first["x"], second["x"]) == (-5, 1)
    assert int(first["big"]) == 2**64 - 1
    assert (first["y"], first["name"], first["on"], first["no"]) == (1.5, "none", False, None)
    assert first["day"].startswith("2018-08-01")
    assert first["at"].startswith("2018-08-01T05:00:00")
    assert first["f"] == "0.10"


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ({"name": "x", "type": "bigint", "default": "many"}, "'many' is not"),
        ({"name": "x", "type": "tinyint", "default": 300}, "does not hold 300"),
        ({"name": "x", "type": "date", "default": "someday"}, "'someday' is not"),
        ({"name": "t2", "type": "decimal(4,2)", "default": "1.234"}, "'1.234' is not"),
        ({"name": "x", "type": "bigint", "default": [1]}, "default"),
    ],
)
def test_defaults_that_do_not_fit_are_refused(api: Any, column: dict[str, Any], why: str) -> None:
    body = {"name": "d", "time": "t", "schema": [{"name": "t", "type": "timestamp"}, column]}
    answer = api.post("/v1/streams", json=body)
    assert answer.status_code in (400, 422)
    assert why in answer.text
    assert api.get("/v1/streams/d").status_code == 404


def test_the_time_has_no_default(api: Any) -> None:
    columns = [{"name": "t", "type": "timestamp", "default": "2020-01-01"}]
    answer = api.post("/v1/streams", json={"name": "d", "time": "t", "schema": columns})
    assert answer.status_code == 400
    assert "can have no default" in answer.text
