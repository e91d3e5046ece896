"""SQL over HTTP: queries, statements, errors, EXPLAIN."""

from __future__ import annotations

from typing import Any

import pytest

from .flights import append, rows_of


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
