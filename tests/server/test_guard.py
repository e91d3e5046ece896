"""Who gets in: open servers, tokens, scopes, globs, foreign pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import InvalidArgument
from chronicle.server.access.settings import Settings, is_loopback
from chronicle.server.access.tokens import create_token, revoke_token
from chronicle.server.run import check_binding

QUERY = "/v1/query?q=SELECT%201"


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


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
    assert client.get(QUERY).status_code == 401, "the last token is gone, a token is still required"


def test_with_tokens_any_host_and_address_will_do(fake: Any, serve_app: Callable[..., Any]) -> None:
    _, secret = create_token(fake.path, "a", ["read"])
    client = serve_app(fake, address="192.0.2.7")
    headers = {**bearer(secret), "host": "chronicle.example"}
    assert client.get(QUERY, headers=headers).status_code == 200


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
        (["write"], "CREATE STREAM x TIMESTAMP BY n AS SELECT n FROM flights", 403),
        (["read"], "CREATE STREAM x TIMESTAMP BY n AS SELECT n FROM flights", 403),
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
        "CREATE STREAM elsewhere TIMESTAMP BY n AS SELECT * FROM flights",
        "CREATE STREAM fl2 TIMESTAMP BY n AS SELECT * FROM secret",
        "SELECT * FROM secret MATCH_RECOGNIZE (ORDER BY n MEASURES A.n AS x PATTERN (A B) "
        "DEFINE B AS n > 1)",
    ],
)
def test_a_token_for_some_streams_reaches_no_other_one(
    sql: str, served: Callable[..., Any]
) -> None:
    """A stream out of reach answers as one that does not exist, and nothing is changed or read."""
    ask, database = served
    answers = []
    for name in ("secret", "nobody"):  # the second is not there
        text = sql.replace("secret", name).replace("Secret", name.title())
        for path in ("/v1/query", "/v1/explain"):
            response = ask("POST", path, json={"sql": text})
            answers.append((path, response.status_code, told(response, name)))
            assert response.status_code in (400, 403), (path, response.text)
    assert answers[:2] == answers[2:]
    assert database.streams() == ["flights", "secret", "secret/too"]
    assert [database.stream(name).count for name in ("flights", "secret")] == [1, 1]


def told(response: Any, name: str) -> str:
    """The words of an answer, whatever the name in it is."""
    document = response.json()
    document.pop("request_id", None)
    words = str(document)
    assert "secret" not in words.replace(name, "")
    return words.replace(name, "NAME").replace(name.title(), "NAME")


@pytest.fixture
def served(tmp_path: Path, serve_app: Callable[..., Any]) -> Any:
    """Requests with a token that reaches some streams, and the database."""
    schema = pa.schema([pa.field("t", pa.int64(), False), pa.field("n", pa.int64())])
    with chronicle.open(tmp_path / "real") as database:
        for name in ("flights", "secret", "secret/too"):
            database.create_stream(name, schema, time="t").append([{"t": 1, "n": 2}])
        _, secret = create_token(database.path, "a", ["admin"], ["fl*"])
        client = serve_app(database)

        def ask(method: str, path: str, **more: Any) -> Any:
            return client.request(method, path, headers=bearer(secret), **more)

        yield ask, database


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'secret' AS a",
        "SELECT n AS secret FROM flights",
        "SELECT secret.n FROM flights AS secret",
        "WITH secret AS (SELECT n FROM flights) SELECT * FROM secret",
    ],
)
def test_names_that_mean_no_stream_are_no_oracle(sql: str, served: Any) -> None:
    """What a text would answer with any other name, it answers with that of a stream elsewhere."""
    ask, _ = served
    response = ask("POST", "/v1/query", json={"sql": sql})
    assert response.status_code == 200, response.text


def test_no_hint_and_no_list_names_a_stream_out_of_reach(served: Any) -> None:
    ask, _ = served
    for method, path, more in (
        ("POST", "/v1/query", {"json": {"sql": "SELECT * FROM flsecret"}}),
        ("POST", "/v1/query", {"json": {"sql": "SELECT * FROM secre"}}),
        ("POST", "/v1/query", {"json": {"sql": "DROP STREAM flsecret"}}),
        ("POST", "/v1/query", {"json": {"sql": "INSERT INTO flsecret VALUES (1, 1)"}}),
        ("GET", "/v1/streams/flsecret", {}),
        ("GET", "/v1/streams/flsecret/events", {}),
        ("GET", "/v1/streams/flsecret/events?where=n>1", {}),
        ("GET", "/v1/streams/flsecret/aggregate?attribute=n", {}),
        ("GET", "/v1/streams/flsecret/partitions", {}),
        ("GET", "/v1/streams/flsecret/changes?until=1-03ab5c7d9e1f2a4b", {}),
        ("POST", "/v1/streams/flsecret/positions", {"json": {}}),
        ("POST", "/v1/streams/flsecret/events", {"json": [{"t": 1}]}),
        ("POST", "/v1/streams/flsecret/indexes/n", {}),
        ("PUT", "/v1/streams/flsecret/transactions/t/parts/p?format=json", {"content": b"[]"}),
        ("DELETE", "/v1/streams/flsecret", {}),
    ):
        response = ask(method, path, **more)
        assert response.status_code in (400, 404), (path, response.text)
        assert "secret" not in response.text.replace("flsecret", ""), (path, response.text)
    for response in (
        ask("GET", "/v1/streams"),
        ask("POST", "/v1/query", json={"sql": "SHOW STREAMS"}),
        ask("GET", "/metrics"),
        ask("GET", "/readyz"),
    ):
        assert response.status_code == 200
        assert "secret" not in response.text
    assert ask("GET", "/readyz").json() == {"status": "ready", "mode": "rw", "streams": 1}


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
    assert client.get(QUERY, headers=headers).status_code == status, "an open server runs nothing"
    _, secret = create_token(fake.path, "a", ["admin"])
    headers |= bearer(secret)
    response = client.post("/v1/query", content=b"SELECT 1", headers=headers)
    assert response.status_code == status
    assert client.get(QUERY, headers=headers).status_code == 200, "a page has no token to send"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, 200),  # the address bar
        ({"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1"}, 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),  # an image elsewhere
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),  # a link elsewhere
        ({"sec-fetch-site": "same-site"}, 403),  # another port of this machine
        ({"referer": "http://evil.example/page"}, 403),  # an old browser
        ({"referer": "http://127.0.0.1/docs"}, 200),
        ({"referer": "http://127.0.0.1:8001/docs"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "https://app.example"}, 200),  # listed
    ],
)
def test_an_open_server_runs_no_queries_for_foreign_pages(
    headers: dict[str, str], status: int, fake: Any, serve_app: Callable[..., Any]
) -> None:
    client = serve_app(fake, cors_origins="https://app.example")
    response = client.get(QUERY, headers=headers)
    assert response.status_code == status, response.text
    assert len(fake.results) == (status == 200)
    _, secret = create_token(fake.path, "a", ["read"])
    assert client.get(QUERY, headers={**headers, **bearer(secret)}).status_code == 200


@pytest.mark.parametrize("name", ["authorization", "host", "content-type", "idempotency-key"])
def test_headers_that_two_programs_could_read_in_two_ways(name: str, client: Any) -> None:
    response = client.get(QUERY, headers=[(name, "a"), (name, "a")])
    assert response.status_code == 400
    assert name in response.json()["detail"]


def test_a_request_has_so_many_headers_and_parameters(client: Any) -> None:
    many = [(f"x-{number}", "a") for number in range(101)]
    assert client.get(QUERY, headers=many).json()["code"] == "headers-too-large"
    assert client.get("/v1/streams?" + "&".join(["a=1"] * 300)).status_code == 400


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
