"""Live queries over HTTP: made, followed, paused, put right, dropped."""

from __future__ import annotations

import io
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.server import create_token
from chronicle.tests.patience import PATIENCE_S, wait_until

from .event_client import Source, parse

SCHEMA = pa.schema([pa.field("t", pa.int64(), False), pa.field("n", pa.int64())])
HIGH = "CREATE LIVE QUERY high IDLE AFTER INTERVAL '0' SECOND AS SELECT t, n FROM s WHERE n > 10"
FIELDS = {"name": "high", "sql": "SELECT t, n FROM s WHERE n > 10", "idle": "0 seconds"}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Any]:
    with chronicle.open(tmp_path / "store", live=True) as opened:
        opened.create_stream("s", SCHEMA, time="t")
        yield opened


def url(served: Any, path: str = "/v1/live/high/rows") -> str:
    return f"http://127.0.0.1:{served.port}{path}"


def net(rows: list[Any]) -> list[tuple[int, int]]:
    """What holds after all that was said."""
    held: dict[tuple[str, int], tuple[int, int]] = {}
    for row in rows:
        key = (row["_id"], row["_rev"])
        if row["_diff"] > 0:
            assert key not in held
            held[key] = (row["t"], row["n"])
        else:
            assert held.pop(key) == (row["t"], row["n"])
    return sorted(held.values())


def test_made_asked_about_and_dropped(database: Any, serve_app: Callable[..., Any]) -> None:
    client = serve_app(database)
    made = client.post("/v1/live", json=FIELDS)
    assert made.status_code == 201, made.text
    assert made.headers["location"] == "/v1/live/high"
    assert made.json()["name"] == "high"
    again = client.post("/v1/live", json={**FIELDS, "if_not_exists": True})
    assert again.status_code == 200
    assert client.post("/v1/live", json=FIELDS).status_code == 400
    other = client.post("/v1/live", content=HIGH.replace("high", '"two words"'))
    assert (other.status_code, other.json()["name"]) == (201, "two words")
    assert client.get("/v1/live/two%20words").json()["definition"]["source"] == "s"
    listed = client.get("/v1/live").json()["live"]
    assert [each["name"] for each in listed] == ["high", "two words"]
    assert client.post("/v1/live/high/pause").json()["state"] == "paused"
    database.stream("s").append([{"t": 1, "n": 50}])
    database.run_live()
    assert database.live("high").status()["rows"] == 0
    assert client.post("/v1/live/high/resume").json()["state"] in ("running", "catching up")
    database.run_live()
    assert client.post("/v1/live/high/refresh?start=0&end=5").status_code == 200
    assert client.get("/v1/live/high").json()["rows"] == 1
    assert client.delete("/v1/live/high?keep_results=true").status_code == 204
    assert database.stream("high").count == 1
    assert client.delete("/v1/live/two%20words").status_code == 204
    assert client.get("/v1/live").json() == {"live": []}


def test_what_cannot_be(database: Any, serve_app: Callable[..., Any]) -> None:
    client = serve_app(database)
    for body, status, code in (
        ({"sql": "SELECT t FROM s"}, 400, "invalid-argument"),
        ({"sql": HIGH, "delay": 3}, 400, "invalid-argument"),
        ({"name": "a", "sql": "SELECT t FROM s ORDER BY t"}, 400, "sql-error"),
        ({"name": "a", "sql": "SELECT t FROM nobody"}, 400, "sql-error"),
        ({"name": "a", "sql": "DROP STREAM s"}, 400, None),
        ({"name": "a", "sql": "SELECT t FROM s", "delay": "soon"}, 400, "invalid-argument"),
        ({"name": "", "sql": "SELECT t FROM s"}, 422, "invalid-request"),
        ({"name": "a", "sql": "SELECT t FROM s", "color": "red"}, 422, "invalid-request"),
    ):
        answer = client.post("/v1/live", json=body)
        assert answer.status_code == status, (body, answer.text)
        assert code in (None, answer.json()["code"]), answer.text
    assert database.streams() == ["s"]
    for method, path in (
        ("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/refresh"), ("GET", "/rows"),
    ):  # fmt: skip
        assert client.request(method, f"/v1/live/nobody{path}").status_code == 404
    client.post("/v1/live", content=HIGH)
    assert client.get("/v1/live/high/rows?after=7").status_code == 410
    assert client.get("/v1/live/high/rows?after=-1").status_code == 422
    bad = client.get("/v1/live/high/rows", headers={"Last-Event-ID": "x"})
    assert (bad.status_code, bad.json()["code"]) == (400, "invalid-argument")
    assert client.get("/v1/live/high/rows?format=csv").status_code == 406


def test_metrics_tell_what_steps_cost_and_find(
    database: Any, serve_app: Callable[..., Any]
) -> None:
    client = serve_app(database)
    stream = database.stream("s")
    pattern = (
        "SELECT a FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a PATTERN (A B) WITHIN 100 "
        "DEFINE A AS n > 10, B AS n > 20)"
    )
    windows = (
        "SELECT window_start, count(*) AS n FROM TUMBLE(s, t, 10) GROUP BY window_start, window_end"
    )
    for name, sql in (("high", FIELDS["sql"]), ("rising", pattern), ("counts", windows)):
        body = {"name": name, "sql": sql, "idle": "0 seconds"}
        assert client.post("/v1/live", json=body).status_code == 201

    def figures() -> dict[str, float]:
        lines = client.get("/metrics").text.splitlines()
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in lines)
            if name.startswith("chronicle_live_")
        }

    values = [5, 11, 21, 12, 3, 30]
    for t, n in enumerate(values):
        stream.append([{"t": 20 * t, "n": n}])
        database.run_live(timeout=PATIENCE_S)
    before = figures()
    stream.append([{"t": 1, "n": 50}])  # late
    database.run_live(timeout=PATIENCE_S)
    after = figures()
    assert before['chronicle_live_hits{query="high"}'] == 4
    assert after['chronicle_live_hits{query="high"}'] == 5
    assert before['chronicle_live_hits{query="rising"}'] > 0
    assert 'chronicle_live_hits{query="counts"}' not in after
    for name in ("high", "rising", "counts"):
        steps = f'chronicle_live_step_seconds_count{{query="{name}"}}'
        seconds = f'chronicle_live_step_seconds_sum{{query="{name}"}}'
        regions = f'chronicle_live_reconcile_seconds_count{{query="{name}"}}'
        spent = f'chronicle_live_reconcile_seconds_sum{{query="{name}"}}'
        assert len(values) <= before[steps] < after[steps]
        assert 0 < before[seconds] < after[seconds]
        assert before[regions] < after[regions]
        assert before[spent] < after[spent] < after[seconds]


def test_preview_keeps_nothing(database: Any, serve_app: Callable[..., Any]) -> None:
    client = serve_app(database)
    database.stream("s").append([{"t": t, "n": t} for t in range(30)])
    answer = client.post("/v1/live/preview", json={"sql": FIELDS["sql"], "limit": 3})
    assert [row["n"] for row in answer.json()["rows"]] == [11, 12, 13]
    bad = client.post("/v1/live/preview", json={"sql": "SELECT t FROM s LIMIT 3"})
    assert (bad.status_code, bad.json()["code"]) == (400, "sql-error")
    assert client.post("/v1/live/preview", json={"sql": "DROP STREAM s"}).status_code >= 400
    assert database.live_queries() == []
    assert database.streams() == ["s"]


def test_rows_come_as_they_are_put_out_and_corrected(
    database: Any, live: Callable[..., Any]
) -> None:
    served = live(database)
    assert served.http.post("/v1/live", content=HIGH).status_code == 201
    source = Source(url(served))
    stream = database.stream("s")
    stream.append([{"t": 10, "n": 11}, {"t": 20, "n": 5}])
    source.wait(1)
    stream.append([{"t": 4, "n": 99}])  # late
    rows = source.wait(2)
    assert [(row["_seq"], row["t"], row["n"]) for row in rows] == [(1, 10, 11), (2, 4, 99)]
    assert [event.id for event in source.of("row")] == ["1", "2"]
    wait_until(lambda: any(m.data["watermark"] == 20 for m in source.of("mark")))
    assert {"seq", "state", "watermark", "lag_events", "lag_ms", "error"} == set(
        source.of("mark")[-1].data
    )
    query = {"after": 1, "format": "ndjson"}
    lines = served.http.get("/v1/live/high/rows", params=query).text.splitlines()
    assert [json.loads(line)["_seq"] for line in lines] == [2]
    arrow = served.http.get("/v1/live/high/rows", params={"format": "arrow"}).content
    assert pa.ipc.open_stream(io.BytesIO(arrow)).read_all().column("_seq").to_pylist() == [1, 2]
    ended = served.http.get("/v1/live/high/rows?follow=false", headers={"Last-Event-ID": "1"})
    events = list(parse(iter(ended.text.splitlines())))
    assert [(event.kind, event.id) for event in events] == [
        ("row", "2"),
        ("mark", "2"),
        ("bye", "2"),
    ]
    served.http.delete("/v1/live/high")
    assert source.ended()
    assert source.events[-1].kind == "error"


def test_followers_that_come_back_have_every_seq_once(
    database: Any, live: Callable[..., Any]
) -> None:
    served = live(database)
    served.http.post("/v1/live", content=HIGH)
    sources = [Source(url(served), reconnect=True) for _ in range(3)]
    rng = random.Random(3)
    stream = database.stream("s")
    told: list[tuple[int, int]] = []
    done = threading.Event()

    def write() -> None:
        newest = 0
        for _ in range(150):
            newest += rng.randint(0, 4)
            late = [max(0, newest - rng.randint(0, 50)) for _ in range(rng.randint(0, 2))]
            rows = [{"t": t, "n": rng.randint(0, 30)} for t in sorted([newest, *late])]
            told.extend((row["t"], row["n"]) for row in rows if row["n"] > 10)
            stream.append(rows, durability="none")
            time.sleep(0.004)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        time.sleep(0.06)
        rng.choice(sources).drop()
    thread.join()
    database.run_live(timeout=PATIENCE_S)
    count = sum(batch.num_rows for batch in database.live("high").rows())
    for source in sources:
        rows = source.wait(count)
        assert [row["_seq"] for row in rows] == list(range(1, len(rows) + 1))
    wait_until(lambda: net(sources[0].rows) == sorted(told))
    wait_until(lambda: max(source.connections for source in sources) > 1)
    for source in sources:
        source.stop()


def test_a_page_that_sleeps_is_broken_off_and_comes_back_to_every_row(
    database: Any, live: Callable[..., Any]
) -> None:
    """It is cut off in mid-event, and goes on from the last whole one that it has read."""
    served = live(database, client_timeout_ms=1000)
    wide = FIELDS | {"sql": "SELECT t, n, lpad('', 4000, 'x') AS text FROM s WHERE n > 10"}
    assert served.http.post("/v1/live", json=wide).status_code == 201
    page = Source(url(served), reconnect=True, receive_bytes=4096)
    stream = database.stream("s")

    def broken_off() -> float:
        metrics = served.http.get("/metrics").text
        told = re.search(r'_follows_total{kind="live",outcome="slow"} (\S+)', metrics)
        return float(told[1]) if told else 0.0

    rounds, size = 3, 2000  # more than the buffers of a socket hold
    for number in range(rounds):
        first = number * size
        stream.append([{"t": first, "n": 50}])
        page.wait(first + 1)
        before = broken_off()
        page.stall()
        stream.append([{"t": t, "n": 60} for t in range(first + 1, first + size)])
        wait_until(lambda before=before: broken_off() > before)
        assert len(page.rows) < first + size
        page.go_on()
    rows = page.wait(rounds * size)
    wait_until(lambda: page.connections == broken_off() + 1)  # a slow machine breaks it off as well
    page.stop()
    assert [row["_seq"] for row in rows] == list(range(1, rounds * size + 1))
    assert [row["t"] for row in rows] == list(range(rounds * size))


def test_queries_that_share_a_sink_are_told_apart(database: Any, live: Callable[..., Any]) -> None:
    served = live(database)
    for name, bound in (("low", 5), ("top", 20)):
        sql = f"SELECT t, n FROM s WHERE n > {bound}"
        body = {"name": name, "sql": sql, "into": "alerts", "idle": "0 seconds"}
        assert served.http.post("/v1/live", json=body).status_code == 201
    database.stream("s").append([{"t": 1, "n": 30}, {"t": 2, "n": 10}])
    source = Source(url(served, "/v1/live/top/rows"))
    assert [row["_query"] for row in source.wait(1)] == ["top"]
    database.stream("s").append([{"t": 3, "n": 40}, {"t": 4, "n": 10}])
    rows = source.wait(2)
    assert [row["n"] for row in rows] == [30, 40]
    assert rows[0]["_seq"] < rows[1]["_seq"]


def test_scopes(database: Any, serve_app: Callable[..., Any]) -> None:
    tokens = {
        name: {"Authorization": "Bearer " + create_token(database.path, name, scopes, streams)[1]}
        for name, scopes, streams in (
            ("admin", ["admin", "read"], ["*"]),
            ("reader", ["read"], ["high"]),
            ("other", ["admin", "read"], ["x*"]),
        )
    }
    client = serve_app(database)
    assert client.post("/v1/live", content=HIGH).status_code == 401
    for name in ("reader", "other"):
        answer = client.post("/v1/live", content=HIGH, headers=tokens[name])
        assert answer.status_code in (400, 403), answer.text
        answer = client.post("/v1/live", json=FIELDS, headers=tokens[name])
        assert answer.status_code == 403, answer.text
    secret = {**FIELDS, "name": "xs"}  # it may make that, but not read s
    assert client.post("/v1/live", json=secret, headers=tokens["other"]).status_code in (400, 403)
    assert client.post("/v1/live", content=HIGH, headers=tokens["admin"]).status_code == 201
    assert client.get("/v1/live/high", headers=tokens["reader"]).status_code == 200
    assert client.get("/v1/live/high", headers=tokens["other"]).status_code == 403
    assert client.get("/v1/live", headers=tokens["other"]).json() == {"live": []}
    missing = client.get("/v1/live/xy", headers=tokens["other"])
    assert missing.status_code == 404
    assert "high" not in missing.text
    assert client.get("/v1/live/high/rows", headers=tokens["other"]).status_code == 403
