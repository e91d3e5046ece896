"""System tables through a server: what runs, what ran, what is set, and who may see it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

import chronicle.server as tokens
from chronicle.server.access.settings import Settings

from .flights import SPEC

LOG = "SELECT text, token, rows, outcome, error FROM chronicle.query_log"


@pytest.fixture
def served(database: Any, serve_app: Callable[..., Any]) -> Any:
    """A server with tokens: ``ask(token, sql)``; the names of tokens are what they may do."""
    store = database.path
    made = {
        "admin": tokens.create_token(store, "admin", ["admin"])[1],
        "reader": tokens.create_token(store, "reader", ["read"])[1],
        "flights": tokens.create_token(store, "flights", ["read"], ["flights"])[1],
        "some": tokens.create_token(store, "some", ["admin"], ["flights"])[1],
        "writer": tokens.create_token(store, "writer", ["write"])[1],
    }
    client = serve_app(database, query_log_entries=5, slow_query_ms=1, isolation="none")

    def ask(name: str, sql: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {made[name]}"}
        return client.post("/v1/query", json={"sql": sql}, headers=headers, **more)

    for name in ("flights", "secret"):
        headers = {"Authorization": f"Bearer {made['admin']}"}
        client.post("/v1/streams", json={**SPEC, "name": name}, headers=headers)
    return ask


def rows(answer: Any) -> list[tuple[Any, ...]]:
    assert answer.status_code == 200, answer.text
    return [tuple(row.values()) for row in answer.json()["rows"]]


def test_a_token_sees_its_own_queries(served: Any) -> None:
    served("reader", "SELECT 1 AS one")
    served("flights", "SELECT 2 AS two")
    served("reader", "SELECT nothing FROM flights")
    mine = rows(served("reader", LOG))
    assert mine == [
        ("SELECT 1 AS one", "reader", 1, "ok", None),
        ("SELECT nothing FROM flights", "reader", 0, "refused", mine[1][4]),
    ]
    assert "nothing" in mine[1][4]
    assert [row[0] for row in rows(served("flights", LOG))] == ["SELECT 2 AS two"]
    seen = [(row[0], row[1]) for row in rows(served("admin", LOG))]
    assert ("SELECT 2 AS two", "flights") in seen
    assert (LOG, "reader") in seen
    assert all(token == "some" for _, token, *_ in rows(served("some", LOG)))


def test_the_log_has_a_bound(served: Any) -> None:
    for number in range(9):
        served("reader", f"SELECT {number} AS n")
    assert [row[0] for row in rows(served("reader", LOG))] == [
        f"SELECT {number} AS n" for number in range(4, 9)
    ]


def test_known_small_queries_are_in_it_as_well(served: Any) -> None:
    for _ in range(3):
        rows(served("reader", "SELECT count(*) FROM flights"))
    assert [row[0] for row in rows(served("reader", LOG))] == ["SELECT count(*) FROM flights"] * 3


def test_what_runs_sees_itself(served: Any) -> None:
    text = "SELECT text, token, running_ms >= 0 AS since, started <= now() AS began "
    text += "FROM chronicle.queries"
    assert rows(served("reader", text)) == [(text, "reader", True, True)]


def test_streams_out_of_reach_are_in_no_table(served: Any) -> None:
    for table in ("chronicle.streams", "information_schema.columns", "information_schema.tables",
                  "chronicle.indexes", "chronicle.segments", "chronicle.live_queries",
                  "chronicle.query_log", "chronicle.queries"):  # fmt: skip
        assert "secret" not in served("flights", f"SELECT * FROM {table}").text, table
    seen = rows(served("reader", "SELECT stream FROM chronicle.streams"))
    assert seen == [("flights",), ("secret",)]


def test_settings_are_for_administrators_of_everything(served: Any) -> None:
    asked = "SELECT value FROM chronicle.settings WHERE name = 'CHRONICLE_QUERY_LOG_ENTRIES'"
    assert rows(served("admin", asked)) == [("5",)]
    names = rows(served("admin", "SELECT name FROM chronicle.settings"))
    assert len(names) == len(Settings.model_fields)
    for other in ("reader", "flights", "some"):
        assert served(other, asked).status_code == 403
        assert served(other, f"EXPLAIN {asked}").status_code == 403
    assert served("writer", "SELECT 1").status_code == 403


def test_slow_queries_are_logged(served: Any, caplog: Any) -> None:
    logger = logging.getLogger("chronicle")
    was, logger.propagate = logger.propagate, True
    try:
        with caplog.at_level(logging.WARNING, "chronicle.server.slow"):
            served("reader", "SELECT sum(a.range) FROM range(900000) a, range(9) b")
    finally:
        logger.propagate = was
    (line,) = [r for r in caplog.records if r.name == "chronicle.server.slow"]
    assert re.fullmatch(r"query took \d+ ms, ok: SELECT sum.*", line.getMessage())
    assert line.token == "reader"
