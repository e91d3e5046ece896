"""Answers made of rows: formats, limits, truncation, time, cancellation, clients that leave."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chronicle.tests.patience import PATIENCE_S, wait_until

from .conftest import HOUR_MS

ARROW = "application/vnd.apache.arrow.stream"


def query(client: Any, sql: str = "SELECT 2", path: str = "/v1/query", **body: Any) -> Any:
    return client.post(path, json={"sql": sql, **body})


def idle(client: Any) -> bool:
    server = client.app.state.server
    return server.queries.running == 0 and len(server.running) == 0


def test_json_is_an_envelope(fake: Any, teach: Any, client: Any) -> None:
    fake.taught["SELECT 2"] = teach.rows(2)
    response = query(client)
    document = response.json()
    assert document["columns"] == ["n", "s"]
    assert document["types"] == ["bigint", "varchar"]
    assert document["rows"] == [{"n": 0, "s": "s0"}, {"n": 1, "s": "s1"}]
    assert (document["row_count"], document["truncated"]) == (2, False)
    assert document["query_id"] == response.headers["x-query-id"]
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-row-count"] == "2"
    assert fake.results[-1].closed


@pytest.mark.parametrize("count", [0, 1, 1000, 25_000])
def test_all_formats_hold_the_same_rows(count: int, fake: Any, teach: Any, client: Any) -> None:
    fake.taught["SELECT 2"] = teach.rows(count)
    expected = [{"n": n, "s": f"s{n}"} for n in range(count)]
    assert query(client).json()["rows"] == expected
    lines = query(client, path="/v1/query?format=ndjson").text.splitlines()
    assert [json.loads(line) for line in lines] == expected
    text = query(client, path="/v1/query?format=csv").text
    found = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [{"n": int(row["n"]), "s": row["s"]} for row in found] == expected
    for path in (
        "?format=arrow",
        "?format=arrow&compression=lz4",
        "?format=arrow&compression=zstd",
    ):
        response = query(client, path="/v1/query" + path)
        assert response.headers["content-type"] == ARROW
        table = pa.ipc.open_stream(response.content).read_all()
        assert table.schema == teach.schema
        assert table.to_pylist() == expected
    parquet = query(client, path="/v1/query?format=parquet").content
    assert pq.read_table(io.BytesIO(parquet)).to_pylist() == expected


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", "application/json"),
        ("", "application/json"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "application/json"),
        ("text/csv", "text/csv; charset=utf-8"),
        ("text/csv;q=0.2, application/x-ndjson;q=0.7", "application/x-ndjson"),
        ("application/json;q=0, text/csv", "text/csv; charset=utf-8"),
        (ARROW, ARROW),
        ("TEXT/CSV", "text/csv; charset=utf-8"),
        ("image/png", "application/problem+json"),
    ],
)
def test_accept_chooses_the_format(accept: str, content_type: str, client: Any) -> None:
    response = client.get("/v1/query?q=SELECT%201", headers={"accept": accept})
    assert response.headers["content-type"] == content_type
    forced = client.get("/v1/query?q=SELECT%201&format=CSV", headers={"accept": accept})
    assert forced.headers["content-type"].startswith("text/csv")


def test_get_is_read_only_and_post_is_not(fake: Any, client: Any) -> None:
    client.get("/v1/query?q=SELECT%201")
    assert fake.read_only[-1] is True
    query(client)
    assert fake.read_only[-1] is False


@pytest.mark.parametrize(
    ("limit", "rows", "truncated"),
    [(0, 0, True), (1, 1, True), (999, 999, True), (2500, 2500, False), (9999, 2500, False)],
)
def test_limits_cut_and_say_so(
    limit: int, rows: int, truncated: bool, fake: Any, teach: Any, client: Any
) -> None:
    fake.taught["SELECT 2"] = teach.rows(2500)
    response = query(client, limit=limit)
    document = response.json()
    assert len(document["rows"]) == document["row_count"] == rows
    assert document["truncated"] is truncated
    lines = query(client, limit=limit, path="/v1/query?format=ndjson&end_marker=true").text
    last = json.loads(lines.splitlines()[-1])
    assert last == {"$end": {"rows": rows, "truncated": truncated}}
    arrow = query(client, limit=limit, path="/v1/query?format=arrow")
    stream = pa.ipc.open_stream(arrow.content)
    marks = [more for _, more in stream.iter_batches_with_custom_metadata() if more is not None]
    assert bool(marks) is truncated
    plain = query(client, limit=limit, path="/v1/query?format=csv")
    assert plain.headers["x-truncated"] == ("true" if truncated else "false")
    assert plain.headers["x-row-count"] == str(rows)


def test_no_more_is_computed_than_the_limit_needs(fake: Any, teach: Any, client: Any) -> None:
    fake.taught["SELECT 2"] = teach.endless
    document = query(client, limit=7).json()
    assert (document["row_count"], document["truncated"]) == (7, True)
    wait_until(lambda: idle(client))


def test_the_servers_own_limit_never_cuts_in_silence(
    fake: Any, teach: Any, serve_app: Callable[..., Any]
) -> None:
    client = serve_app(fake, max_rows=10)
    fake.taught["SELECT 2"] = teach.rows(11)
    document = query(client, limit=1000).json()
    assert (document["row_count"], document["truncated"]) == (10, True)
    for name in ("csv", "ndjson", "parquet"):
        response = query(client, path=f"/v1/query?format={name}")
        assert response.status_code == 413
        assert response.json()["code"] == "resource-limit"
        asked = query(client, limit=10, path=f"/v1/query?format={name}")
        assert asked.status_code == 200, "a limit that the client chose may cut"
    fake.taught["SELECT 2"] = teach.rows(10)
    assert query(client, path="/v1/query?format=csv").status_code == 200


def test_wide_integers_can_be_text(fake: Any, teach: Any, client: Any) -> None:
    fake.taught["SELECT 2"] = teach.rows(2)
    for name in ("json", "ndjson"):
        text = query(client, path=f"/v1/query?format={name}&int64_as_string=true").text
        assert '"n":"1"' in text
        assert '"n":1' in query(client, path=f"/v1/query?format={name}").text


def test_columns_of_one_name_are_told_apart(fake: Any, client: Any) -> None:
    schema = pa.schema([("x", pa.int64()), ("x", pa.int64()), ("x_1", pa.int64())])

    def give(control: Any) -> Any:
        yield pa.RecordBatch.from_arrays([pa.array([n]) for n in (1, 2, 3)], schema=schema)

    fake.taught["SELECT 2"] = give
    fake.schema_of = {"SELECT 2": schema}
    document = query(client).json()
    assert document["rows"] == [{"x": 1, "x_2": 2, "x_1": 3}]


@pytest.mark.parametrize("name", ["json", "ndjson", "csv"])
def test_text_is_compressed_for_those_who_take_it(
    name: str, fake: Any, teach: Any, client: Any
) -> None:
    fake.taught["SELECT 2"] = teach.rows(20_000)
    path = f"/v1/query?format={name}&q=SELECT%202"
    packed = client.get(path, headers={"accept-encoding": "gzip"})
    plain = client.get(path, headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    if name == "json":
        assert packed.json()["rows"] == plain.json()["rows"]
    else:
        assert packed.content == plain.content  # httpx unpacks
    sent = int(packed.headers.get("content-length", 0))
    assert sent < len(plain.content)
    arrow = client.get("/v1/query?format=arrow&q=SELECT%202", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in arrow.headers


def test_time_limits_end_a_query(fake: Any, teach: Any, client: Any) -> None:
    fake.taught["SELECT 2"] = teach.stuck
    response = query(client, timeout_ms=50)
    assert response.status_code == 504
    assert response.json()["code"] == "query-timeout"
    wait_until(lambda: idle(client))


def test_the_servers_time_limit_wins(fake: Any, teach: Any, serve_app: Callable[..., Any]) -> None:
    client = serve_app(fake, query_timeout_ms=50)
    fake.taught["SELECT 2"] = teach.stuck
    assert query(client, timeout_ms=HOUR_MS).status_code == 504


def test_a_running_query_is_listed_and_cancelled(fake: Any, teach: Any, client: Any) -> None:
    fake.taught["SELECT 2"] = teach.stuck
    found: list[Any] = []
    headers = {"x-request-id": "mine"}
    thread = threading.Thread(
        target=lambda: found.append(
            client.post("/v1/query", json={"sql": "SELECT 2"}, headers=headers)
        )
    )
    thread.start()
    wait_until(lambda: len(client.app.state.server.running) == 1)
    (listed,) = client.get("/v1/queries").json()["queries"]
    assert (listed["id"], listed["kind"], listed["text"]) == ("mine", "query", "SELECT 2")
    assert listed["running_ms"] >= 0
    assert client.delete("/v1/queries/mine").status_code == 204
    thread.join(PATIENCE_S)
    assert found[0].status_code == 499
    assert found[0].json()["code"] == "query-cancelled"
    wait_until(lambda: idle(client))
    assert client.delete("/v1/queries/mine").status_code == 404


def test_queries_of_others_are_out_of_sight(
    fake: Any, teach: Any, serve_app: Callable[..., Any]
) -> None:
    from chronicle.server.access.tokens import create_token

    bearers = {}
    for name, scope in (("a", "read"), ("b", "read"), ("boss", "admin")):
        bearers[name] = {"authorization": f"Bearer {create_token(fake.path, name, [scope])[1]}"}
    client = serve_app(fake)
    fake.taught["SELECT 2"] = teach.stuck
    headers = {**bearers["a"], "x-request-id": "of-a"}
    thread = threading.Thread(
        target=lambda: client.post("/v1/query", json={"sql": "SELECT 2"}, headers=headers)
    )
    thread.start()
    wait_until(lambda: len(client.app.state.server.running) == 1)
    assert client.get("/v1/queries", headers=bearers["b"]).json()["queries"] == []
    assert client.delete("/v1/queries/of-a", headers=bearers["b"]).status_code == 404
    assert len(client.get("/v1/queries", headers=bearers["boss"]).json()["queries"]) == 1
    assert client.delete("/v1/queries/of-a", headers=bearers["boss"]).status_code == 204
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_too_many_queries_wait_then_are_turned_away(
    fake: Any, teach: Any, serve_app: Callable[..., Any]
) -> None:
    client = serve_app(
        fake,
        max_concurrent_queries=3,  # of which one is left to other clients
        max_waiting_queries=1,
        max_client_queries=4,
    )
    held = fake.taught["SELECT 2"] = teach.held()
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(query(client).status_code)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    server = client.app.state.server
    wait_until(lambda: server.queries.running == 2 and server.queries.waiting == 1)
    refused = query(client)
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["code"] == "overloaded"
    assert client.get("/healthz").status_code == 200
    held.release.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert found == [200, 200, 200]
    assert query(client).status_code == 200
    exposed = client.get("/metrics").text
    assert 'chronicle_rejected_requests_total{reason="overloaded"} 1.0' in exposed


def test_one_client_may_have_so_many(fake: Any, teach: Any, serve_app: Callable[..., Any]) -> None:
    client = serve_app(fake, max_client_queries=1)
    held = fake.taught["SELECT 2"] = teach.held()
    thread = threading.Thread(target=lambda: query(client))
    thread.start()
    assert held.entered.acquire(timeout=PATIENCE_S)
    refused = query(client)
    assert (refused.status_code, refused.json()["code"]) == (429, "too-many-requests")
    assert refused.headers["retry-after"] == "1"
    held.release.set()
    thread.join(PATIENCE_S)
    wait_until(lambda: idle(client))
    assert query(client).status_code == 200


class Caller:
    """One request by hand, so that the client can go away at any moment."""

    def __init__(self, client: Any, sql: str) -> None:
        self.client = client
        self.sent: list[Any] = []
        self.gone = asyncio.Event()
        self.first_byte = threading.Event()
        body = json.dumps({"sql": sql}).encode()
        self.messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive(self) -> Any:
        if self.messages:
            return self.messages.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body" and message.get("body"):
            self.first_byte.set()

    def start(self) -> Any:
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": "/v1/query",
            "raw_path": b"/v1/query",
            "root_path": "",
            "scheme": "http",
            "query_string": b"format=csv",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        coroutine = self.client.app(scope, self.receive, self.send)
        return asyncio.run_coroutine_threadsafe(coroutine, self.client.loop)

    def leave(self) -> None:
        self.client.loop.call_soon_threadsafe(self.gone.set)


@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_leaves_ends_its_query(
    fake: Any, teach: Any, client: Any, begun: bool
) -> None:
    fake.taught["SELECT 2"] = teach.endless if begun else teach.stuck
    caller = Caller(client, "SELECT 2")
    call = caller.start()
    if begun:
        assert caller.first_byte.wait(PATIENCE_S)
    wait_until(lambda: len(client.app.state.server.running) == 1)
    caller.leave()
    call.result(PATIENCE_S)
    wait_until(lambda: idle(client))
    assert fake.results[-1].closed
    assert 'kind="query",outcome="cancelled"} 1.0' in client.get("/metrics").text
    if begun:
        assert caller.sent[-1].get("more_body"), "the answer must not look complete"
    else:
        assert caller.sent == []


def test_a_client_that_takes_nothing_is_let_go(
    fake: Any, teach: Any, serve_app: Callable[..., Any]
) -> None:
    client = serve_app(fake, client_timeout_ms=60_000)
    fake.taught["SELECT 2"] = teach.endless
    caller = Caller(client, "SELECT 2")
    stalls = threading.Event()

    async def stalled(message: Any) -> None:
        caller.sent.append(message)
        if message["type"] == "http.response.body":
            stalls.set()
            await asyncio.Future()

    caller.send = stalled  # type: ignore[method-assign]
    call = caller.start()
    assert stalls.wait(PATIENCE_S)
    client.pass_time(61)
    call.result(PATIENCE_S)
    wait_until(lambda: idle(client))
    assert not any(m["type"] == "http.response.body" and not m["more_body"] for m in caller.sent)


def test_an_error_in_the_middle_breaks_the_answer_off(fake: Any, teach: Any, client: Any) -> None:
    from chronicle.errors import CorruptBlock

    def give(control: Any) -> Any:
        yield from teach.rows(20_000)(control)
        raise CorruptBlock("checksum", "x.seg", 64)

    fake.taught["SELECT 2"] = give
    caller = Caller(client, "SELECT 2")
    caller.start().result(PATIENCE_S)
    assert caller.sent[0]["status"] == 200
    assert caller.sent[-1].get("more_body"), "the answer must not look complete"
    wait_until(lambda: idle(client))


def test_requests_are_named_and_timed(client: Any) -> None:
    response = client.get("/v1/query?q=SELECT%201", headers={"x-request-id": "abc-1.2:3"})
    assert response.headers["x-request-id"] == "abc-1.2:3"
    timing = response.headers["server-timing"]
    assert [part.partition(";")[0] for part in timing.split(", ")] == ["queue", "first", "total"]
    odd = client.get("/healthz", headers={"x-request-id": "a b\tc"})
    assert len(odd.headers["x-request-id"]) == 32
    assert odd.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b'{"sql": "SELECT 2"}', {"content-type": "application/json"}),
        (b'{"sql": "SELECT 2"}', {"content-type": "application/x-www-form-urlencoded"}),
        (b"SELECT 2", {"content-type": "application/x-www-form-urlencoded"}),
        (b"SELECT 2\n", {"content-type": "text/plain; charset=utf-8"}),
        (b"SELECT 2", {"content-type": "application/sql"}),
        (b"sql=SELECT+2", {"content-type": "application/x-www-form-urlencoded"}),
        (b"SELECT 2", {}),
    ],
)
def test_ways_to_send_sql(
    content: bytes, headers: dict[str, str], fake: Any, teach: Any, client: Any
) -> None:
    fake.taught["SELECT 2"] = teach.rows(2)
    response = client.post("/v1/query", content=content, headers=headers)
    assert response.json()["row_count"] == 2
