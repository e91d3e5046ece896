"""How a request's parameters are read: names, types, repetitions, and who asks first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

import chronicle
from chronicle.server import create_token

from .flights import SPEC, rows_of, table_of

QUERY, EVENTS = "/v1/query?q=SELECT 1", "/v1/streams/flights/events?"


@pytest.fixture
def ask(database: chronicle.Database, serve_app: Callable[..., Any]) -> Callable[..., Any]:
    api = serve_app(database)
    for name in ("flights", "a/b"):
        assert api.post("/v1/streams", json={**SPEC, "name": name}).status_code == 201
        database.stream(name).append(table_of(rows_of(4)))
    return lambda path, **headers: api.get(quote(path, safe="/?=&%+:"), headers=headers)


@pytest.mark.parametrize(
    ("path", "where", "message"),
    [
        (f"{QUERY}&limt=1", "query.limt", "no such parameter; did you mean limit?"),
        (f"{QUERY}&where=1", "query.where", "no such parameter; known are compression,"),
        ("/v1/session?wish=1", "query.wish", "no such parameter; known are none"),
        ("/v1/query", "query.q", "Field required"),
        (f"{QUERY}&limit=-1", "query.limit", "greater than or equal to 0"),
        (f"{QUERY}&limit=1e3", "query.limit", "valid integer"),
        (f"{QUERY}&limit=9223372036854775808", "query.limit", "less than or equal to"),
        (f"{QUERY}&limit=1&limit=2", "query.limit", "several values given"),
        (f"{QUERY}&timeout_ms=0", "query.timeout_ms", "greater than or equal to 1"),
        (f"{EVENTS}version=x", "query.version", "valid integer"),
        (f"{EVENTS}start=1&precision=h", "query.precision", "Input should be 's'"),
    ],
)
def test_a_parameter_that_does_not_fit_is_named(
    ask: Callable[..., Any], path: str, where: str, message: str
) -> None:
    answer = ask(path)
    assert answer.status_code == 422, answer.text
    (fault,) = answer.json()["errors"]
    assert fault["where"] == where
    assert message in fault["message"]


def test_what_goes_into_the_body_of_a_post_is_no_parameter(client: Any) -> None:
    refused = client.post("/v1/query?limit=5", json={"sql": "SELECT 1"})
    assert (refused.status_code, refused.json()["errors"][0]["where"]) == (422, "query.limit")


def test_lists_repeat(ask: Callable[..., Any]) -> None:
    columns = ask(f"{EVENTS}columns=altitude&columns=icao24&limit=2&limit=2").json()
    assert [list(row) for row in columns] == [["altitude", "icao24"]] * 2
    assert ask(f"{EVENTS}columns=altitude,icao24&limit=2").json() == columns
    assert len(ask("/v1/streams/a%2Fb/events").json()) == 4
    assert ask("/healthz?wish=1").status_code == 200
    assert ask(f"{EVENTS}where=icao24='%FF'").status_code == 400


def test_who_is_not_authenticated_learns_no_parameters(
    database: chronicle.Database, ask: Callable[..., Any]
) -> None:
    secret = create_token(database.path, "r", ["read"])[1]
    for path in (f"{QUERY}&wish=1", f"{QUERY}&limit=-1"):
        assert ask(path).status_code == 401
        assert ask(path, authorization=f"Bearer {secret}").status_code == 422
