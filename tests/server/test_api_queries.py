"""SQL over HTTP: queries, statements, errors, EXPLAIN."""

from __future__ import annotations

from typing import Any

from .flights import append, rows_of


def test_sql_errors_say_where(api: Any) -> None:
    response = api.post("/v1/query", json={"sql": "SELECT icao24,\n  altitud FROM flights"})
    document = response.json()
    assert (response.status_code, document["code"]) == (400, "sql-error")
    assert document["position"] == {"line": 2, "column": 3}
    assert "altitude" in document["detail"]
    unread = api.post("/v1/query", json={"sql": "SELECT 1 +\n  FROM FROM x"}).json()
    assert (unread["code"], unread["position"]["line"]) == ("sql-error", 2)
    missing = api.post("/v1/query", json={"sql": "SELECT * FROM nowhere"})
    assert missing.json()["code"] in ("sql-error", "stream-not-found")


def test_sql_reaches_nothing_but_streams(api: Any) -> None:
    for sql in (
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY flights TO '/tmp/x'",
        "ATTACH '/tmp/x.db'",
        "INSTALL httpfs",
        "SET memory_limit = '100GB'",
        "SELECT current_setting('memory_limit')",
        "SELECT 1; SELECT 2",
        '([1], "a" -> 1)',
    ):
        response = api.post("/v1/query", json={"sql": sql})
        assert response.status_code in (400, 404), (sql, response.text)


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
