"""``/mcp``: the protocol's own client over HTTP, with the checks that all routes have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

import chronicle
from chronicle.agents import tools
from chronicle.server import create_token
from chronicle.server.access.tokens import INCLUDED, SCOPES
from chronicle.tests.patience import PATIENCE_S, wait_until

httpx2 = pytest.importorskip("httpx2", reason="comes with mcp")
pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="needs the extra mcp")

HEADERS = {"Accept": "application/json, text/event-stream"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def bearer(secret: str | None) -> dict[str, str]:
    return HEADERS if secret is None else {**HEADERS, "authorization": f"Bearer {secret}"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "SECONDS_MAX", PATIENCE_S)


@pytest.fixture
def filled(database: Any) -> Any:
    for name in ("flights", "vault"):
        database.sql(f"CREATE STREAM {name} (t BIGINT, x DOUBLE) TIMESTAMP BY t")
        database.sql(f"INSERT INTO {name} SELECT n, n / 2 FROM range(300) AS r(n)")
    return database


def text_of(answer: Any) -> tuple[bool, str]:
    assert answer.status_code == 200, answer.text
    result = answer.json()["result"]
    return bool(result.get("isError")), result["content"][0]["text"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_client_of_the_protocol(filled: Any, live: Callable[..., Any], mode: str) -> None:
    _, secret = create_token(filled.path, "agent", ["read"], ["flights"])
    url = f"http://127.0.0.1:{live(filled).port}/mcp"

    import mcp  # takes a second: whoever collects does without
    from mcp.client.streamable_http import streamable_http_client

    async def run() -> list[Any]:
        async with httpx2.AsyncClient(headers=bearer(secret), timeout=PATIENCE_S) as http:
            transport = streamable_http_client(url, http_client=http)
            async with mcp.Client(transport, mode=mode) as client:
                names = {tool.name for tool in (await client.list_tools()).tools}
                assert {"streams", "query", "matches"} <= names
                return [
                    await client.call_tool(name, given)
                    for name, given in (
                        ("streams", {}),
                        ("query", {"sql": "SELECT count(*) AS n FROM flights"}),
                        ("query", {"sql": "SELECT count(*) AS n FROM vault"}),
                        ("profile", {"stream": "vault"}),
                        ("profile", {"stream": "flights"}),
                    )
                ]

    listed, counted, hidden, refused, shown = asyncio.run(run())
    rows = [json.loads(line) for line in listed.content[0].text.split("\n")[1:]]
    assert [row["stream"] for row in rows] == ["flights"]
    assert json.loads(counted.content[0].text.split("\n")[1]) == {"n": 300}
    assert hidden.is_error
    assert "vault" not in hidden.content[0].text.replace("'vault'", "")
    assert refused.is_error
    assert "reaches the streams flights" in refused.content[0].text
    assert "'max': 149.5" in shown.content[0].text


def test_tools_answer_the_same_over_a_client(filled: Any, live: Callable[..., Any]) -> None:
    clause = "MATCH_RECOGNIZE (ORDER BY t PATTERN (A B) DEFINE A AS x = $at, B AS x > A.x)"
    asked = {
        "matches": {"sql": f"SELECT * FROM flights {clause}", "params": {"at": 3}},
        "describe": {"stream": "flights"},
        "profile": {"stream": "flights"},
        "explain": {"sql": "SELECT nothing FROM flights"},
    }

    import mcp

    async def told(database: Any) -> dict[str, str]:
        async with mcp.Client(tools.tools_over(database)) as client:
            found = {name: await client.call_tool(name, given) for name, given in asked.items()}
        return {name: one.content[0].text for name, one in found.items()}

    with chronicle.connect(f"http://127.0.0.1:{live(filled).port}") as remote:
        here, there = asyncio.run(told(filled)), asyncio.run(told(remote))
    assert here == there
    assert '"variables": {"A": {"first": 6, "last": 6, "count": 1}' in here["matches"]


def test_scopes_and_tokens(filled: Any, serve_app: Callable[..., Any]) -> None:
    secrets = {scope: create_token(filled.path, scope, [scope])[1] for scope in SCOPES}
    api = serve_app(filled)
    for scope, secret in secrets.items():
        status = api.post("/mcp", json=LIST, headers=bearer(secret)).status_code
        assert status == (200 if "read" in INCLUDED[scope] else 403), scope
    nobody = api.post("/mcp", json=LIST, headers=HEADERS)
    assert (nobody.status_code, nobody.json()["code"]) == (401, "unauthorized")
    assert api.post("/mcp", json=LIST, headers=bearer("chr_x")).status_code == 401
    assert nobody.headers["cache-control"] == "no-store"


def test_nothing_is_changed(filled: Any, serve_app: Callable[..., Any]) -> None:
    _, secret = create_token(filled.path, "boss", ["admin"])
    api = serve_app(filled)
    for sql in (
        "DROP STREAM flights", "DELETE FROM flights", "INSERT INTO flights VALUES (1, 1)",
        "CREATE STREAM s (t BIGINT) TIMESTAMP BY t", "CREATE INDEX ON flights (x)",
    ):  # fmt: skip
        failed, said = text_of(
            api.post("/mcp", json=call("query", sql=sql), headers=bearer(secret))
        )
        assert (failed, "only queries may run here" in said) == (True, True), said
    assert filled.streams() == ["flights", "vault"]
    assert filled.stream("flights").count == 300


def test_pages_of_other_sites_are_refused(filled: Any, serve_app: Callable[..., Any]) -> None:
    open_api = serve_app(filled)
    assert open_api.post("/mcp", json=LIST, headers=HEADERS).status_code == 200
    for told in (
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"host": "rebound.example"},
    ):
        assert open_api.post("/mcp", json=LIST, headers={**HEADERS, **told}).status_code == 403
    _, secret = create_token(filled.path, "reader", ["read"])
    api = serve_app(filled, cors_origins=["https://good.example"])
    for origin, status in {"https://evil.example": 403, "https://good.example": 200}.items():
        headers = {**bearer(secret), "origin": origin}
        assert api.post("/mcp", json=LIST, headers=headers).status_code == status


@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        (b"", {400}),
        (b"{", {400}),
        (b"[]", {400}),
        (b'{"jsonrpc": "2.0"}', {400}),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "nothing"}', {200, 400, 404}),
        (b'{"a": ' * 5000, {400}),
        (b"\xff\xfe", {400}),
        (b" " * (2 << 20), {413}),
    ],
)
def test_what_is_no_message(
    filled: Any, serve_app: Callable[..., Any], body: bytes, statuses: set[int]
) -> None:
    api = serve_app(filled)
    headers = {**HEADERS, "content-type": "application/json"}
    answer = api.post("/mcp", content=body, headers=headers)
    assert answer.status_code in statuses, answer.text
    assert "Traceback" not in answer.text
    assert api.get("/mcp", headers=HEADERS).status_code == 405
    assert api.post("/mcp?x=1", json=LIST, headers=HEADERS).status_code == 422


def test_a_call_is_a_query_among_others(filled: Any, serve_app: Callable[..., Any]) -> None:
    api = serve_app(filled)
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b"
    running = api.app.state.server.running
    found: list[Any] = []

    async def ask() -> None:
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(api.app), base_url="http://127.0.0.1", timeout=PATIENCE_S
        ) as client:
            message = call("query", sql=endless)
            found.append(await client.post("/mcp", json=message, headers=HEADERS))

    asked = asyncio.run_coroutine_threadsafe(ask(), api.loop)
    wait_until(lambda: any(query.text == endless for query in running))
    (listed,) = api.get("/v1/queries").json()["queries"]
    assert (listed["text"], listed["kind"]) == (endless, "query")
    assert api.delete(f"/v1/queries/{listed['id']}").status_code == 204
    asked.result(PATIENCE_S)
    failed, said = text_of(found[0])
    assert (failed, "cancelled" in said) == (True, True)
    assert list(running) == []
    text = "SELECT text, outcome FROM chronicle.query_log"
    (logged,) = api.get("/v1/query", params={"q": text}).json()["rows"]
    assert logged == {"text": endless, "outcome": "cancelled"}


def test_without_the_package_it_says_so(
    filled: Any, serve_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mcp.server", None)
    api = serve_app(filled)
    for _ in range(2):
        answer = api.post("/mcp", json=LIST, headers=HEADERS)
        assert (answer.status_code, answer.json()["code"]) == (501, "missing-dependency")
