"""Events out of a stream over HTTP: ranges, predicates, columns, partitions, aggregates."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from .flights import append, events, rows_of, table_of


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
