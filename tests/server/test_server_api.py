"""The whole API over a real store: events in, everything out again."""

from __future__ import annotations

import base64
import concurrent.futures
import csv
import datetime as dt
import gzip
import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import chronicle

ARROW = "application/vnd.apache.arrow.stream"
SPEC = {
    "name": "flights",
    "time": "timestamp",
    "schema": {
        "timestamp": "timestamp",
        "icao24": "varchar",
        "altitude": "double",
        "squawk": "bigint",
    },
}
TABLE_SCHEMA = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("us"), False),
        ("icao24", pa.string()),
        ("altitude", pa.float64()),
        ("squawk", pa.int64()),
    ]
)
START = dt.datetime(2018, 8, 1, 5, 0)


def rows_of(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "timestamp": (START + dt.timedelta(seconds=n)).isoformat(),
            "icao24": f"4b{n % 7:04x}" if n % 5 else None,
            "altitude": n * 1.5,
            "squawk": 9_007_199_254_740_993 + n,
        }
        for n in range(first, first + count)
    ]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {name: [row[name] for row in rows] for name in TABLE_SCHEMA.names}
    columns["timestamp"] = [dt.datetime.fromisoformat(text) for text in columns["timestamp"]]
    return pa.table(columns, schema=TABLE_SCHEMA)


def as_ndjson(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, TABLE_SCHEMA.names)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def as_arrow(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, TABLE_SCHEMA) as writer:
        writer.write_table(table_of(rows))
    return out.getvalue()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(table_of(rows), out)
    return out.getvalue()


BODIES: dict[str, tuple[str, Callable[[list[dict[str, Any]]], bytes]]] = {
    "json": ("application/json", lambda rows: json.dumps(rows).encode()),
    "ndjson": ("application/x-ndjson", as_ndjson),
    "csv": ("text/csv", as_csv),
    "arrow": (ARROW, as_arrow),
    "parquet": ("application/vnd.apache.parquet", as_parquet),
}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Any]:
    with chronicle.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def api(database: Any, serve_app: Callable[..., Any]) -> Any:
    client = serve_app(database)
    assert client.post("/v1/streams", json=SPEC).status_code == 201
    return client


def append(api: Any, rows: list[dict[str, Any]], name: str = "ndjson", **headers: str) -> Any:
    media_type, encode = BODIES[name]
    return api.post(
        "/v1/streams/flights/events",
        content=encode(rows),
        headers={"content-type": media_type, **headers},
    )


def events(api: Any, **params: Any) -> Any:
    return api.get("/v1/streams/flights/events", params=params).json()


# ------------------------------------------------------------------------------ streams


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


# ---------------------------------------------------------------------------- events in


@pytest.mark.parametrize("encoding", [None, "gzip", "zstd"])
@pytest.mark.parametrize("name", sorted(BODIES))
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
    assert response.json() == {"appended": 300, "late": 0, "count": 300}
    assert events(api) == rows
    forced = api.get("/v1/streams/flights/events", params={"format": "arrow"})
    assert pa.ipc.open_stream(forced.content).read_all() == table_of(rows)
    lines = api.get("/v1/streams/flights/events", headers={"accept": "application/x-ndjson"})
    assert [json.loads(line) for line in lines.text.splitlines()] == rows
    text = api.get("/v1/streams/flights/events", headers={"accept": "text/csv"}).text
    assert len(list(csv.reader(io.StringIO(text, newline="")))) == 301


def test_what_was_read_can_be_sent_back(api: Any) -> None:
    append(api, rows_of(50))
    api.post("/v1/streams", json={**SPEC, "name": "copy"})
    for name in ("json", "ndjson", "csv", "arrow", "parquet"):
        got = api.get("/v1/streams/flights/events", params={"format": name})
        sent = api.post(
            "/v1/streams/copy/events",
            content=got.content,
            headers={"content-type": got.headers["content-type"]},
        )
        assert sent.json()["appended"] == 50, name


def test_late_events_are_counted(api: Any) -> None:
    append(api, rows_of(10, first=100))
    assert append(api, rows_of(5)).json() == {"appended": 5, "late": 5, "count": 15}
    assert events(api) == rows_of(5) + rows_of(10, first=100)


def test_no_events_are_no_error(api: Any) -> None:
    for name in sorted(BODIES):
        if name == "csv":
            continue
        assert append(api, [], name).json() == {"appended": 0, "late": 0, "count": 0}, name


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
    assert again.json() == first.json() == {"appended": 5, "late": 0, "count": 5}
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


def test_sixteen_writers_at_once(api: Any) -> None:
    def write(number: int) -> int:
        done = 0
        for turn in range(5):
            first = (number * 5 + turn) * 10
            done += append(api, rows_of(10, first=first)).json()["appended"]
        return done

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(write, range(16))) == 800
    assert events(api) == rows_of(800)
    server = api.app.state.server
    assert server.appends.running == 0
    assert server.uploads.used == 0


# --------------------------------------------------------------------------- events out


@pytest.mark.parametrize(
    ("params", "numbers"),
    [
        ({}, range(100)),
        ({"start": "2018-08-01T05:00:10", "end": "2018-08-01T05:00:13Z"}, [10, 11, 12]),
        ({"start": "2018-08-01T07:00:10+02:00", "end": "2018-08-01 05:00:12"}, [10, 11]),
        ({"start": "1533099610000000", "end": "1533099612000000"}, [10, 11]),
        ({"start": "1533099610", "end": "1533099612", "precision": "s"}, [10, 11]),
        ({"end": "2018-08-01T05:00:02"}, [0, 1]),
        ({"start": "2018-08-01T05:01:38"}, [98, 99]),
        ({"start": "2019-01-01"}, []),
        ({"limit": "3"}, [0, 1, 2]),
        ({"limit": "0"}, []),
        ({"where": "altitude > 100 AND altitude < 105"}, [67, 68, 69]),
        ({"where": "icao24 IS NULL", "limit": "2"}, [0, 5]),
        ({"where": "altitude = 3 OR icao24 LIKE '%nothing'"}, [2]),
    ],
)
def test_ranges_and_predicates(api: Any, params: dict[str, str], numbers: Any) -> None:
    rows = rows_of(100)
    append(api, rows)
    assert events(api, **params) == [rows[n] for n in numbers]


def test_a_read_says_whether_there_is_more(api: Any) -> None:
    append(api, rows_of(10))
    for params, truncated in (
        ({"limit": 3}, "true"),
        ({"limit": 10}, "false"),
        ({"limit": 3, "where": "altitude > 3"}, None),  # nobody looked for a fourth
        ({"limit": 30, "where": "altitude > 3"}, "false"),
    ):
        response = api.get("/v1/streams/flights/events", params=params)
        assert response.headers.get("x-truncated") == truncated, params
    lines = api.get(
        "/v1/streams/flights/events",
        params={"limit": 3, "format": "ndjson", "end_marker": "true"},
    ).text.splitlines()
    assert json.loads(lines[-1]) == {"$end": {"rows": 3, "truncated": True}}
    assert len(lines) == 4


def test_a_plus_in_an_address_is_an_offset(api: Any) -> None:
    append(api, rows_of(20))
    found = api.get(
        "/v1/streams/flights/events?start=2018-08-01T07:00:18+02:00&columns=altitude"
    ).json()
    assert found == [{"altitude": 27.0}, {"altitude": 28.5}]


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (["altitude,timestamp"], ["altitude", "timestamp"]),
        (["altitude", "timestamp"], ["altitude", "timestamp"]),
        (['"altitude", ICAO24'], ["altitude", "icao24"]),
        (["squawk"], ["squawk"]),
    ],
)
def test_columns_come_in_the_order_asked_for(
    api: Any, columns: list[str], names: list[str]
) -> None:
    append(api, rows_of(3))
    for row in events(api, columns=columns):
        assert list(row) == names


@pytest.mark.parametrize(
    ("params", "status", "code"),
    [
        ({"start": "soon"}, 400, "invalid-argument"),
        ({"start": "2018-08-01T05:00:00.0000001"}, 400, "invalid-argument"),
        ({"columns": "altitud"}, 404, "attribute-not-found"),
        ({"columns": ""}, 400, "invalid-argument"),
        ({"columns": "altitude,ALTITUDE"}, 400, "invalid-argument"),
        ({"where": "altitud > 1"}, 400, "sql-error"),
        ({"where": "altitude >"}, 400, "sql-error"),
        ({"where": "true; DROP STREAM flights"}, 400, "sql-error"),
        ({"where": "altitude IN (SELECT altitude FROM flights)"}, 400, "sql-error"),
        ({"where": "EXISTS (SELECT 1 FROM flights)"}, 400, "sql-error"),
        ({"where": "altitude > (SELECT 1)"}, 400, "sql-error"),
        ({"where": "max(altitude) > 1"}, 400, "sql-error"),
        ({"limit": "-1"}, 422, "invalid-request"),
        ({"format": "xml"}, 406, "not-acceptable"),
        ({"version": "999999"}, 410, "snapshot-expired"),
    ],
)
def test_reads_that_cannot_be(api: Any, params: dict[str, str], status: int, code: str) -> None:
    append(api, rows_of(3))
    response = api.get("/v1/streams/flights/events", params=params)
    assert (response.status_code, response.json().get("code")) == (status, code), response.text


def test_wide_integers_as_text(api: Any) -> None:
    append(api, rows_of(1))
    (row,) = events(api, int64_as_string="true")
    assert row["squawk"] == "9007199254740993"
    assert row["altitude"] == 0.0


def test_partitions_cover_the_stream_at_one_version(api: Any) -> None:
    rows = rows_of(20_000)
    append(api, rows, "arrow")
    plan = api.get("/v1/streams/flights/partitions", params={"parts": 4}).json()
    assert (plan["stream"], plan["time"], plan["count"]) == ("flights", "timestamp", 20_000)
    append(api, rows_of(5, first=30_000))
    append(api, rows_of(5))
    found = []
    for part in plan["partitions"]:
        params = {k: v for k, v in part.items() if v is not None}
        response = api.get(
            "/v1/streams/flights/events",
            params={**params, "version": plan["version"], "format": "arrow"},
        )
        found.append(pa.ipc.open_stream(response.content).read_all())
    assert pa.concat_tables(found) == table_of(rows)
    again = api.get(
        "/v1/streams/flights/partitions", params={"parts": 2, "version": plan["version"]}
    ).json()
    assert again["version"] == plan["version"]
    narrow = api.get(
        "/v1/streams/flights/partitions",
        params={"parts": 4, "start": "2018-08-01T05:00:10", "end": "2018-08-01T05:00:20"},
    ).json()
    firsts = [part["start"] for part in narrow["partitions"]]
    assert firsts[0] == 1533099610000000
    assert narrow["partitions"][-1]["end"] == 1533099620000000
    empty = api.get(
        "/v1/streams/flights/partitions", params={"start": "2019-01-01", "end": "2018-01-01"}
    ).json()
    assert empty["partitions"] == []


# -------------------------------------------------------------------------- aggregates


def test_aggregates(api: Any) -> None:
    append(api, rows_of(100))
    found = api.get(
        "/v1/streams/flights/aggregate",
        params={
            "attribute": "altitude",
            "functions": "count,min,max,avg",
            "start": "2018-08-01T05:00:10",
            "end": "2018-08-01T05:00:20",
        },
    ).json()
    assert found["aggregates"] == {
        "altitude": {"count": 10, "min": 15.0, "max": 28.5, "avg": 21.75}
    }
    both = api.get("/v1/streams/flights/aggregate", params={"attribute": "altitude,icao24"}).json()[
        "aggregates"
    ]
    assert both["altitude"]["sum"] == 1.5 * sum(range(100))
    assert both["icao24"]["count"] == 80
    assert "sum" not in both["icao24"]
    wide = api.get(
        "/v1/streams/flights/aggregate", params={"attribute": "squawk", "functions": "sum"}
    )
    assert str(sum(row["squawk"] for row in rows_of(100))) in wide.text


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"attribute": "altitud"}, 404),
        ({"attribute": "altitude", "functions": "mode"}, 400),
        ({"attribute": "altitude", "start": "x"}, 400),
        ({"attribute": " "}, 400),
        ({}, 422),
    ],
)
def test_aggregates_that_cannot_be(api: Any, params: dict[str, str], status: int) -> None:
    assert api.get("/v1/streams/flights/aggregate", params=params).status_code == status


# ----------------------------------------------------------------------------- queries


def test_queries_and_parameters(api: Any) -> None:
    append(api, rows_of(100))
    found = api.post(
        "/v1/query",
        json={
            "sql": "SELECT icao24, count(*) AS n FROM flights WHERE altitude > $low "
            "GROUP BY icao24 ORDER BY n DESC, icao24 LIMIT 2",
            "params": {"low": 30},
        },
    ).json()
    assert found["columns"] == ["icao24", "n"]
    assert len(found["rows"]) == 2
    listed = api.post(
        "/v1/query",
        json={"sql": "SELECT count(*) AS n FROM flights WHERE altitude > ?", "params": [30]},
    ).json()
    assert listed["rows"] == [{"n": 79}]


def test_statements_through_post_only(api: Any) -> None:
    create = "CREATE STREAM made (t TIMESTAMP, x DOUBLE) TIMESTAMP BY t"
    refused = api.get("/v1/query", params={"q": create})
    assert (refused.status_code, refused.json()["code"]) == (403, "read-only-store")
    assert api.post("/v1/query", json={"sql": create}).status_code == 200
    insert = "INSERT INTO made VALUES (TIMESTAMP '2018-08-01 05:00:00', 1.5)"
    assert api.get("/v1/query", params={"q": insert}).status_code == 403
    assert api.post("/v1/query", json={"sql": insert}).status_code == 200
    assert api.get("/v1/query", params={"q": "SELECT x FROM made"}).json()["rows"] == [{"x": 1.5}]
    shown = api.get("/v1/query", params={"q": "SHOW STREAMS"}).json()
    assert shown["row_count"] == 2
    assert api.post("/v1/query", json={"sql": "DROP STREAM made"}).status_code == 200
    assert len(api.get("/v1/streams").json()["streams"]) == 1


def test_sql_errors_say_where(api: Any) -> None:
    response = api.post("/v1/query", json={"sql": "SELECT icao24,\n  altitud FROM flights"})
    document = response.json()
    assert (response.status_code, document["code"]) == (400, "sql-error")
    assert document["position"] == {"line": 2, "column": 3}
    assert "altitude" in document["detail"]
    missing = api.post("/v1/query", json={"sql": "SELECT * FROM nowhere"})
    assert missing.json()["code"] in ("sql-error", "stream-not-found")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY flights TO '/tmp/x'",
        "ATTACH '/tmp/x.db'",
        "INSTALL httpfs",
        "SET memory_limit = '100GB'",
        "SELECT current_setting('memory_limit')",
        "SELECT 1; SELECT 2",
    ],
)
def test_sql_reaches_nothing_but_streams(api: Any, sql: str) -> None:
    response = api.post("/v1/query", json={"sql": sql})
    assert response.status_code in (400, 404), response.text


def test_explain(api: Any) -> None:
    append(api, rows_of(10))
    sql = "SELECT max(altitude) FROM flights"
    plain = api.post("/v1/explain", json={"sql": sql}).json()
    assert plain["text"]
    assert plain["analyzed"] is False
    ran = api.post("/v1/explain", json={"sql": sql, "analyze": True}).json()
    assert ran["analyzed"] is True
    assert ran["plan"]["operator"]
    wrong = api.post("/v1/explain", json={"sql": "SELECT nothing FROM flights"})
    assert wrong.json()["code"] == "sql-error"


def test_indexes(api: Any) -> None:
    append(api, rows_of(1000))
    made = api.post("/v1/streams/flights/indexes/altitude")
    if made.status_code == 501:
        assert made.json()["code"] == "missing-dependency"
        pytest.skip("this build has no secondary indexes")
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


# ------------------------------------------------------------------------ transactions


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


# ------------------------------------------------------------------------------ service


def test_health_readiness_and_metrics(api: Any) -> None:
    assert api.get("/healthz").json()["status"] == "ok"
    assert api.request("HEAD", "/healthz").status_code == 200
    ready = api.get("/readyz").json()
    assert (ready["status"], ready["mode"], ready["streams"]) == ("ready", "rw", 1)
    append(api, rows_of(10))
    events(api)
    rows_sent = 'chronicle_result_rows_total{format="json"} 10.0'
    deadline = time.monotonic() + 20  # a read is counted when its thread has ended
    while rows_sent not in (text := api.get("/metrics").text) and time.monotonic() < deadline:
        time.sleep(0.01)
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
