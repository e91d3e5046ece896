"""Who gets in: open servers, tokens, scopes, globs, foreign pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import InvalidArgument
from chronicle.server.run import check_binding
from chronicle.server.settings import Settings, is_loopback
from chronicle.server.tokens import create_token, revoke_token

QUERY = "/v1/query?q=SELECT%201"


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def test_an_open_server_answers_its_own_machine(client: Any) -> None:
    assert client.get(QUERY).status_code == 200


def test_an_open_server_answers_nobody_else(fake: Any, serve_app: Callable[..., Any]) -> None:
    response = serve_app(fake, address="192.0.2.7").get(QUERY)
    assert response.status_code == 403
    assert "token create" in response.json()["detail"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1", 200),
        ("[::1]:8000", 200),
        ("chronicle.localhost", 200),
        ("evil.example:8000", 403),
        ("127.0.0.1.evil.example", 403),
        ("192.168.1.7:8000", 403),
        ("chronicle", 200),  # allowed below
    ],
)
def test_an_open_server_answers_to_loopback_names_only(
    host: str, status: int, fake: Any, serve_app: Callable[..., Any]
) -> None:
    client = serve_app(fake, allowed_hosts="chronicle, other")
    assert client.get(QUERY, headers={"host": host}).status_code == status


def test_with_tokens_a_request_needs_one(fake: Any, serve_app: Callable[..., Any]) -> None:
    client = serve_app(fake)
    assert client.get(QUERY).status_code == 200
    token, secret = create_token(fake.path, "a", ["read"])
    refused = client.get(QUERY)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert client.get(QUERY, headers=bearer("chr_wrong")).status_code == 401
    assert client.get(QUERY, headers={"authorization": "Basic YTpi"}).status_code == 401
    assert client.get(QUERY, headers=bearer(secret)).status_code == 200
    revoke_token(fake.path, token.id)
    assert client.get(QUERY, headers=bearer(secret)).status_code == 401
    assert client.get(QUERY).status_code == 401, "the last token is gone, the door stays shut"


def test_with_tokens_any_host_and_address_will_do(fake: Any, serve_app: Callable[..., Any]) -> None:
    _, secret = create_token(fake.path, "a", ["read"])
    client = serve_app(fake, address="192.0.2.7")
    headers = {**bearer(secret), "host": "chronicle.example"}
    assert client.get(QUERY, headers=headers).status_code == 200


def test_every_route_below_v1_asks_for_the_token(fake: Any, serve_app: Callable[..., Any]) -> None:
    create_token(fake.path, "a", ["read"])
    client = serve_app(fake)
    asked = 0
    for path, operations in client.app.openapi()["paths"].items():
        for method in operations:
            if not path.startswith("/v1"):
                continue
            concrete = path.replace("{", "").replace("}", "")
            response = client.request(method.upper(), concrete, params={"q": "SELECT 1"})
            assert response.status_code == 401, (method, path)
            asked += 1
    assert asked >= 19
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 200
    assert client.get("/metrics").status_code == 401


def test_metrics_can_be_public(fake: Any, serve_app: Callable[..., Any]) -> None:
    create_token(fake.path, "a", ["read"])
    assert serve_app(fake, public_metrics=True).get("/metrics").status_code == 200


@pytest.mark.parametrize(
    ("scopes", "sql", "status"),
    [
        (["read"], "SELECT * FROM flights", 200),
        (["read"], "SHOW STREAMS", 200),
        (["read"], "EXPLAIN SELECT * FROM flights", 200),
        (["read"], "INSERT INTO flights VALUES (1)", 403),
        (["read"], "CREATE STREAM x (t BIGINT) TIMESTAMP BY t", 403),
        (["read"], "DROP STREAM flights", 403),
        (["read"], "CREATE INDEX ON flights (n)", 403),
        (["write"], "INSERT INTO flights VALUES (1)", 200),
        (["write"], "INSERT INTO flights SELECT * FROM flights", 403),
        (["write"], "CREATE STREAM x (t BIGINT) TIMESTAMP BY t", 200),
        (["write"], "SELECT * FROM flights", 403),
        (["write"], "DROP STREAM flights", 403),
        (["read", "write"], "INSERT INTO flights SELECT * FROM flights", 200),
        (["read", "write"], "ALTER STREAM flights ADD COLUMN x DOUBLE", 403),
        (["read", "write"], "DROP INDEX ON flights (n)", 403),
        (["admin"], "SELECT * FROM flights", 200),
        (["admin"], "INSERT INTO flights SELECT * FROM flights", 200),
        (["admin"], "DROP STREAM flights", 200),
        (["admin"], "CREATE INDEX ON flights (n)", 200),
    ],
)
def test_scopes_of_statements(
    scopes: list[str], sql: str, status: int, fake: Any, serve_app: Callable[..., Any]
) -> None:
    _, secret = create_token(fake.path, "a", scopes)
    response = serve_app(fake).post("/v1/query", json={"sql": sql}, headers=bearer(secret))
    assert response.status_code == status, response.text
    if status == 403:
        assert response.json()["code"] == "forbidden"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM secret",
        'SELECT * FROM "secret"',
        "SELECT * FROM Secret",
        "SELECT (SELECT max(n) FROM secret) FROM flights",
        "WITH x AS (SELECT * FROM secret) SELECT * FROM x",
        "SELECT * FROM flights, secret",
        "SELECT * FROM HOP(secret, n, 10, 100)",
        "SELECT * FROM 'secret'",
        "FROM secret",
        "DESCRIBE secret",
        "SHOW INDEXES ON secret",
        "EXPLAIN SELECT * FROM secret",
        "INSERT INTO flights SELECT * FROM secret",
        "INSERT INTO secret SELECT * FROM flights",
        "DROP STREAM secret",
        "CREATE INDEX ON secret (n)",
        "CREATE STREAM elsewhere (t BIGINT) TIMESTAMP BY t",
        "SELECT * FROM secret MATCH_RECOGNIZE (ORDER BY n MEASURES A.n AS x PATTERN (A B) "
        "DEFINE B AS n > 1)",
    ],
)
def test_a_token_for_some_streams_reaches_no_other_one(
    sql: str, fake: Any, serve_app: Callable[..., Any]
) -> None:
    _, secret = create_token(fake.path, "a", ["admin"], ["fl*"])
    client = serve_app(fake)
    for path, body in (("/v1/query", {"sql": sql}), ("/v1/explain", {"sql": sql})):
        response = client.post(path, json=body, headers=bearer(secret))
        assert response.status_code in (403, 400), (path, response.text)
        assert response.json()["code"] in ("forbidden", "sql-error")
    assert fake.results == [], "nothing ran"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/streams/{}"),
        ("DELETE", "/v1/streams/{}"),
        ("GET", "/v1/streams/{}/events"),
        ("POST", "/v1/streams/{}/events"),
        ("GET", "/v1/streams/{}/partitions"),
        ("GET", "/v1/streams/{}/aggregate?attribute=n"),
        ("GET", "/v1/streams/{}/indexes"),
        ("POST", "/v1/streams/{}/indexes/n"),
        ("DELETE", "/v1/streams/{}/indexes/n"),
        ("PUT", "/v1/streams/{}/transactions/t/parts/p"),
        ("DELETE", "/v1/streams/{}/transactions/t"),
    ],
)
def test_out_of_reach_looks_the_same_whether_it_exists(
    method: str, path: str, fake: Any, serve_app: Callable[..., Any]
) -> None:
    _, secret = create_token(fake.path, "a", ["admin"], ["flights"])
    client = serve_app(fake)
    for name in ("secret", "no_such_stream"):
        response = client.request(method, path.format(name), headers=bearer(secret))
        assert response.status_code == 403, response.text


def test_sql_is_run_for_what_a_token_reaches(fake: Any, serve_app: Callable[..., Any]) -> None:
    _, secret = create_token(fake.path, "a", ["read"], ["flights"])
    client = serve_app(fake)
    response = client.post("/v1/query", json={"sql": "SHOW STREAMS"}, headers=bearer(secret))
    assert response.status_code == 200
    (visible,) = fake.visible
    assert [name for name in fake.streams() if visible(name)] == ["flights"]


@pytest.mark.parametrize("scopes", [["write"], ["read", "write"]])
def test_an_insert_that_reads_needs_the_scope_to_read(
    scopes: list[str], fake: Any, serve_app: Callable[..., Any]
) -> None:
    _, secret = create_token(fake.path, "a", scopes)
    sql = "INSERT INTO flights VALUES ((SELECT max(n) FROM secret))"
    response = serve_app(fake).post("/v1/query", json={"sql": sql}, headers=bearer(secret))
    assert response.status_code == (200 if "read" in scopes else 403), response.text


def test_a_stream_out_of_reach_answers_as_one_that_does_not_exist(
    fake: Any, serve_app: Callable[..., Any]
) -> None:
    _, secret = create_token(fake.path, "a", ["admin"], ["fl*"])
    client = serve_app(fake)
    answers = [
        client.post("/v1/query", json={"sql": f"SELECT * FROM {name}"}, headers=bearer(secret))
        for name in ("secret", "secreu")
    ]
    assert {answer.status_code for answer in answers} == {400}
    details = [answer.json()["detail"] for answer in answers]
    assert details[0].replace("secret", "?") == details[1].replace("secreu", "?")


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 200),
        ("http://127.0.0.1", 200),
        ("https://app.example", 200),  # allowed below
        ("http://evil.example", 403),
        ("null", 403),
    ],
)
def test_pages_of_other_origins_may_not_change_anything(
    origin: str | None, status: int, fake: Any, serve_app: Callable[..., Any]
) -> None:
    client = serve_app(fake, cors_origins="https://app.example")
    headers = {} if origin is None else {"origin": origin}
    response = client.post("/v1/query", content=b"SELECT 1", headers=headers)
    assert response.status_code == status
    assert client.get(QUERY, headers=headers).status_code == 200


def test_pages_that_may_call_are_told_so(fake: Any, serve_app: Callable[..., Any]) -> None:
    client = serve_app(fake, cors_origins="https://app.example")
    asked = {"origin": "https://app.example", "access-control-request-method": "POST"}
    response = client.request("OPTIONS", "/v1/query", headers=asked)
    assert response.headers["access-control-allow-origin"] == "https://app.example"
    other = client.get(QUERY, headers={"origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("no-such-host.invalid", False),
    ],
)
def test_loopback_addresses(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_no_public_address_without_tokens(tmp_path: Path) -> None:
    check_binding(Settings(store=tmp_path / "s"))
    with pytest.raises(InvalidArgument, match="token create"):
        check_binding(Settings(store=tmp_path / "s", host="0.0.0.0"))
    create_token(tmp_path / "s", "a", ["admin"])
    check_binding(Settings(store=tmp_path / "s", host="0.0.0.0"))


def test_a_public_server_stays_shut_without_tokens(
    fake: Any, serve_app: Callable[..., Any]
) -> None:
    assert serve_app(fake, host="0.0.0.0").get(QUERY).status_code == 401
