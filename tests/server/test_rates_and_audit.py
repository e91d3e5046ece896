"""What protects answers, how often a client may ask, and what is written down of it."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chronicle.server import create_token, revoke_token
from chronicle.server.access import tokens
from chronicle.server.access.auth import Buckets
from chronicle.tests.patience import wait_until

from .flights import SPEC


@pytest.mark.parametrize("path", ["/healthz", "/v1/streams", "/v1/nothing", "/docs"])
def test_every_answer_protects_who_shows_it(client: Any, path: str) -> None:
    answer = client.get(path)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert (answer.headers.get("cache-control") == "no-store") == ("/v1" in path)
    assert len(answer.headers.get_list("x-request-id")) == 1


def test_the_log_names_the_address(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "chronicle.server.access"):
        client.get("/healthz")
    record = caplog.records[-1]
    assert record.client == "127.0.0.1"
    assert record.getMessage().startswith("127.0.0.1 GET /healthz 200 ")


def test_buckets_fill_at_their_rate() -> None:
    now = 0.0
    buckets = Buckets(2.0, 4.0, clock=lambda: now)
    for _ in range(4):
        assert buckets.wait_s("a") == 0
        buckets.take("a")
    assert buckets.wait_s("a") == pytest.approx(0.5)
    assert buckets.wait_s("b") == 0
    now = 0.75
    assert buckets.wait_s("a") == 0
    buckets.take("a")
    assert buckets.wait_s("a") == pytest.approx(0.25)
    now = 1000.0
    for _ in range(4):
        buckets.take("a")
    assert buckets.wait_s("a") > 0
    assert Buckets(0.0, 0.0).wait_s("a") == 0


def test_a_client_that_asks_too_often_waits(database: Any, serve_app: Callable[..., Any]) -> None:
    api = serve_app(database, max_requests_per_s=2)
    api.app.state.server.authenticator._requests._clock = lambda: 0.0
    answers = [api.get("/v1/streams") for _ in range(12)]
    assert [answer.status_code for answer in answers] == [200] * 4 + [429] * 8
    assert answers[4].json()["code"] == "too-many-requests"
    assert answers[4].headers["retry-after"] == "1"
    assert api.get("/healthz").status_code == 200
    one = api.post(
        "/v1/streams/s/events", content="{}", headers={"content-type": "application/x-ndjson"}
    )
    assert one.status_code == 429, "the short way is counted, too"


def test_an_address_that_guesses_tokens_is_turned_away(
    database: Any, serve_app: Callable[..., Any]
) -> None:
    _, secret = create_token(database.path, "reader", ["read"])
    api = serve_app(database, max_failed_logins_per_minute=3)
    api.app.state.server.authenticator._failures._clock = lambda: 0.0

    def ask(secret: str) -> int:
        answer = api.get("/v1/streams", headers={"authorization": f"Bearer {secret}"})
        return int(answer.status_code)

    assert [ask("guess") for _ in range(4)] == [401, 401, 401, 429]
    assert ask(secret) == 429, "also with the right one: it may have been guessed"


def audited(path: Path) -> list[dict[str, Any]]:
    file = path / "server" / "audit.log"
    if not file.exists():
        return []
    assert file.stat().st_mode & 0o777 == 0o600
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_what_cannot_be_taken_back_is_written_down(
    database: Any, serve_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, admin = create_token(database.path, "boss", ["admin"])
    _, reader = create_token(database.path, "reader", ["read"])
    api = serve_app(database)

    def ask(method: str, path: str, secret: str, **more: Any) -> int:
        headers = {"authorization": f"Bearer {secret}"}
        return int(api.request(method, path, headers=headers, **more).status_code)

    assert ask("POST", "/v1/streams", admin, json=SPEC) == 201
    assert ask("GET", "/v1/query", admin, params={"q": "SELECT count(*) FROM flights"}) == 200
    made = audited(database.path)
    assert [(line["did"], line["token"]) for line in made] == [
        ("made a token", "boss"),
        ("made a token", "reader"),
    ], "reading and writing are in the access log"
    assert ask("DELETE", "/v1/streams/flights", reader) == 403
    assert ask("GET", "/v1/streams", "guess") == 401
    drop = "DROP STREAM flights -- for \u202e good"
    assert ask("POST", "/v1/query", admin, json={"sql": drop}) == 200
    assert ask("DELETE", "/v1/streams/flights", admin) == 404
    lines = audited(database.path)[2:]
    assert [(line["token"], line["status"]) for line in lines] == [
        ("reader", 403),
        (None, 401),
        ("boss", 200),
        ("boss", 404),
    ]
    assert lines[2]["statement"] == drop
    assert {line["client"] for line in lines} == {"127.0.0.1"}
    assert not any(word in json.dumps(lines) for word in ("guess", admin, reader))
    revoke_token(database.path, "reader")
    assert audited(database.path)[-1]["did"] == "revoked a token"
    monkeypatch.setattr(tokens, "BYTES_MAX", 10)
    assert ask("DELETE", "/v1/streams/flights", admin) == 404
    assert not (database.path / "server" / "audit.log").exists()
    assert (database.path / "server" / "audit.log.1").exists()


def test_an_address_has_so_many_connections(database: Any, live: Callable[..., Any]) -> None:
    served = live(database, max_address_connections=3)
    open_ones = [served.connect() for _ in range(3)]
    wait_until(lambda: served.connections == 3)
    with served.connect() as refused, contextlib.suppress(ConnectionResetError):
        assert refused.recv(1) == b""
    for each in open_ones:
        each.close()
    wait_until(lambda: served.connections == 0)
    assert served.http.get("/healthz").status_code == 200
