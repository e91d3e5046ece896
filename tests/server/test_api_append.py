"""Events into a stream over HTTP: every format, bad rows, limits, retries, many writers."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from .flights import ARROW, BODIES, SPEC, append, as_ndjson, events, rows_of, table_of


def test_curl_needs_no_content_type_for_small_bodies(api: Any) -> None:
    for content_type in (None, "application/x-www-form-urlencoded", "application/json"):
        headers = {} if content_type is None else {"content-type": content_type}
        api.delete("/v1/streams/other")
        made = api.post(
            "/v1/streams", content=json.dumps({**SPEC, "name": "other"}), headers=headers
        )
        assert made.status_code == 201, made.text
    wrong = api.post("/v1/streams", content="<a/>", headers={"content-type": "text/xml"})
    assert (wrong.status_code, wrong.json()["code"]) == (415, "unsupported-media-type")


@pytest.mark.parametrize(
    ("name", "encoding"),
    [("json", None), ("ndjson", "gzip"), ("csv", "zstd"), ("arrow", "gzip"), ("parquet", None)],
)
def test_every_format_goes_in_and_comes_out(api: Any, name: str, encoding: str | None) -> None:
    rows = rows_of(300)
    media_type, encode = BODIES[name]
    content = encode(rows)
    headers = {"content-type": media_type}
    if encoding is not None:
        headers["content-encoding"] = encoding
        content = (
            gzip.compress(content)
            if encoding == "gzip"
            else bytes(pa.compress(content, codec="zstd", asbytes=True))
        )
    response = api.post("/v1/streams/flights/events", content=content, headers=headers)
    assert response.json() == {
        "appended": 300, "late": 0, "count": 300, "version": 1, "position": "1", "durable": True
    }  # fmt: skip
    assert events(api) == rows
    forced = api.get("/v1/streams/flights/events", params={"format": "arrow"})
    assert pa.ipc.open_stream(forced.content).read_all() == table_of(rows)
    lines = api.get("/v1/streams/flights/events", headers={"accept": "application/x-ndjson"})
    assert [json.loads(line) for line in lines.text.splitlines()] == rows
    text = api.get("/v1/streams/flights/events", headers={"accept": "text/csv"}).text
    assert len(list(csv.reader(io.StringIO(text, newline="")))) == 301


def test_late_events_are_counted(api: Any) -> None:
    append(api, rows_of(10, first=100))
    late = append(api, rows_of(5)).json()
    assert late.items() >= {"appended": 5, "late": 5, "count": 15}.items()
    assert events(api) == rows_of(5) + rows_of(10, first=100)


def test_no_events_are_no_error(api: Any) -> None:
    for name in sorted(BODIES):
        if name == "csv":
            continue
        nothing = append(api, [], name).json()
        assert nothing.items() >= {"appended": 0, "late": 0, "count": 0}.items(), name


def numbers(api: Any, value: object, **params: str) -> Any:
    return api.post(
        "/v1/streams/flights/events", json=[{"timestamp": value, "altitude": 1}], params=params
    )


@pytest.mark.parametrize(
    ("precision", "value"),
    [
        ("s", 1533099600),
        ("ms", 1533099600000),
        ("us", 1533099600000000),
        ("ns", 1533099600000000000),
    ],
)
def test_numbers_are_times_when_their_unit_is_said(api: Any, precision: str, value: int) -> None:
    refused = numbers(api, value)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid-data")
    assert "precision" in refused.json()["detail"]
    assert numbers(api, value, precision=precision).json()["appended"] == 1
    assert events(api, columns="timestamp") == [{"timestamp": "2018-08-01T05:00:00"}]
    step = 1000 if precision == "ns" else 1  # the stream counts microseconds
    found = events(api, start=value, end=value + step, precision=precision)
    assert len(found) == 1


def test_precision_that_does_not_fit_is_refused(api: Any) -> None:
    assert numbers(api, 1533099600000000001, precision="ns").status_code == 400
    assert numbers(api, 1, precision="days").status_code == 422
    api.post("/v1/streams", json={"name": "t", "time": "t", "schema": {"t": "bigint"}})
    assert api.post("/v1/streams/t/events", json=[{"t": 5}]).json()["appended"] == 1
    refused = api.post("/v1/streams/t/events", json=[{"t": 5}], params={"precision": "s"})
    assert "plain integers" in refused.json()["detail"]


GOOD = '{"timestamp": "2018-08-01T05:00:00", "altitude": 1}\n'


@pytest.mark.parametrize(
    ("content_type", "content", "status", "code"),
    [
        ("application/x-ndjson", GOOD + "{", 400, "invalid-data"),
        ("application/x-ndjson", GOOD + '{"altitude": 1}\n', 400, "invalid-data"),
        ("application/x-ndjson", GOOD + '{"timestamp": null}\n', 400, "invalid-data"),
        ("application/x-ndjson", GOOD + '{"timestamp": "soon"}\n', 400, "invalid-data"),
        (
            "application/x-ndjson",
            GOOD + '{"timestamp": "2018-08-01", "altitude": "high"}\n',
            400,
            "invalid-data",
        ),
        (
            "application/x-ndjson",
            GOOD + '{"timestamp": "2018-08-01", "speed": 1}\n',
            400,
            "schema-mismatch",
        ),
        ("application/json", "[" + GOOD, 400, "invalid-data"),
        ("application/json", "7", 400, "invalid-data"),
        ("text/csv", "timestamp,altitude\n2018-08-01T05:00:00,1,2\n", 400, "invalid-data"),
        ("text/csv", "timestamp,timestamp\n1,2\n", 400, "invalid-data"),
        (ARROW, "not arrow at all", 400, "invalid-data"),
        ("application/vnd.apache.parquet", "PAR1 is not enough", 400, "invalid-data"),
        ("application/xml", "<a/>", 415, "unsupported-media-type"),
        ("application/x-www-form-urlencoded", GOOD, 415, "unsupported-media-type"),
    ],
)
def test_bad_bodies_leave_nothing_behind(
    api: Any, content_type: str, content: str, status: int, code: str
) -> None:
    response = api.post(
        "/v1/streams/flights/events", content=content, headers={"content-type": content_type}
    )
    document = response.json()
    assert (response.status_code, document["code"]) == (status, code), response.text
    assert len(document["detail"]) > 20
    assert events(api) == []


@pytest.mark.parametrize("name", ["arrow", "parquet"])
def test_truncated_files_leave_nothing_behind(api: Any, name: str) -> None:
    media_type, encode = BODIES[name]
    whole = encode(rows_of(1000))
    for cut in (10, len(whole) // 2, len(whole) - 9):
        response = api.post(
            "/v1/streams/flights/events", content=whole[:cut], headers={"content-type": media_type}
        )
        assert response.status_code == 400, cut
        assert response.json()["code"] == "invalid-data"
    assert events(api) == []


def test_bad_rows_are_listed_or_left_out(api: Any) -> None:
    good = rows_of(50)
    lines = as_ndjson(good).decode().splitlines()
    for row in range(40):
        lines[row] = '{"timestamp": "never"}'
    content = "\n".join(lines)
    headers = {"content-type": "application/x-ndjson"}
    refused = api.post("/v1/streams/flights/events", content=content, headers=headers).json()
    assert (refused["code"], refused["row"]) == ("invalid-data", 1)
    assert [error["row"] for error in refused["errors"]] == list(range(1, 21))
    assert {error["column"] for error in refused["errors"]} == {"timestamp"}
    assert events(api) == []
    taken = api.post(
        "/v1/streams/flights/events",
        content=content,
        headers=headers,
        params={"on_error": "skip"},
    ).json()
    assert (taken["appended"], taken["rejected"], len(taken["errors"])) == (10, 40, 20)
    assert events(api) == good[40:]


def test_bodies_have_limits(database: Any, serve_app: Callable[..., Any]) -> None:
    api = serve_app(database, max_body_bytes=2000, max_decoded_bytes=5000)
    api.post("/v1/streams", json=SPEC)
    large = append(api, rows_of(100))
    assert (large.status_code, large.json()["code"]) == (413, "body-too-large")
    packed = api.post(
        "/v1/streams/flights/events",
        content=gzip.compress(as_ndjson(rows_of(100))),
        headers={"content-type": "application/x-ndjson", "content-encoding": "gzip"},
    )
    assert (packed.status_code, packed.json()["code"]) == (413, "resource-limit")
    assert append(api, rows_of(5)).status_code == 200


def test_an_idempotency_key_makes_a_retry_safe(
    database: Any, api: Any, serve_app: Callable[..., Any]
) -> None:
    first = append(api, rows_of(5), **{"idempotency-key": "one"})
    again = append(api, rows_of(5), **{"idempotency-key": "one"})
    assert again.json() == first.json()
    assert first.json().items() >= {"appended": 5, "late": 0, "count": 5}.items()
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    other = append(api, rows_of(6), **{"idempotency-key": "one"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-mismatch")
    bad = append(api, [{"timestamp": "x"}], **{"idempotency-key": "two"})
    assert bad.status_code == 400
    mended = append(api, rows_of(1, first=50), **{"idempotency-key": "two"})
    assert mended.json()["count"] == 6
    restarted = serve_app(database)
    assert append(restarted, rows_of(5), **{"idempotency-key": "one"}).headers[
        "idempotency-replayed"
    ]
    assert len(events(api)) == 6
