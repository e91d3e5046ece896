"""Line protocol over REST: as a format, and at the addresses of InfluxDB."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import chronicle
import chronicle.server as tokens
from chronicle.api.database import catalog_of

CPU = (
    "CREATE STREAM cpu (time TIMESTAMP_NS, host VARCHAR, usage DOUBLE, cores BIGINT) "
    "TIMESTAMP BY time"
)
LINES = (
    "cpu,host=a usage=1.5,cores=4i 1533099600000000001\n"
    "mem,host=a free=7u 1533099600000000002\n"
    "# from a collector\n"
    "cpu,host=b usage=2 1533099600000000003\n"
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Any]:
    with chronicle.open(tmp_path / "store") as opened:
        opened.sql(CPU)
        opened.sql(
            "CREATE STREAM mem (time TIMESTAMP_NS, host VARCHAR, free UBIGINT) TIMESTAMP BY time"
        )
        yield opened


@pytest.fixture
def client(database: Any, serve_app: Callable[..., Any]) -> Any:
    return serve_app(database)


@pytest.mark.parametrize(
    "path", ["/write?db=x", "/api/v2/write?bucket=b&org=o", "/api/v3/write_lp"]
)
def test_measurements_are_streams(client: Any, database: Any, path: str) -> None:
    answer = client.post(path, content=LINES, headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.content) == (204, b"")
    query = "SELECT host, usage, cores, epoch_ns(time) FROM cpu"
    assert database.sql(query).fetchall() == [
        ("a", 1.5, 4, 1533099600000000001), ("b", 2.0, None, 1533099600000000003)
    ]  # fmt: skip
    assert database.sql("SELECT host, free FROM mem").fetchall() == [("a", 7)]
    assert catalog_of(database).snapshot("cpu").version == 1


def test_precision_and_compression(client: Any, database: Any) -> None:
    packed = gzip.compress(b"cpu usage=1 1533099600")
    answer = client.post("/write?precision=s", content=packed, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 204
    assert client.post("/api/v3/write_lp?precision=millisecond&no_sync=true",
                       content=b"cpu usage=2 1533099600001").status_code == 204  # fmt: skip
    assert client.post("/write", content=b"cpu usage=3").status_code == 204
    found = database.sql(
        "SELECT epoch_ms(time), time::TIMESTAMPTZ > now() - INTERVAL 1 HOUR FROM cpu"
    )
    rows = found.fetchall()
    assert [row[0] for row in rows[:2]] == [1533099600000, 1533099600001]
    assert rows[2][1]
    assert client.post("/write?precision=fortnight", content=b"cpu usage=3").status_code == 422
    assert client.post("/write", content=b"").status_code == 204


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        (b"cpu usage", 400, "expected measurement"),
        (b"cpu wind=1 1", 400, "wind"),
        (b'cpu usage="high" 1', 400, "usage"),
        (b"disk used=1 1", 404, "CREATE STREAM"),
        (b"\xff\xfe x=1 1", 404, "measurement"),
    ],
)
def test_a_bad_line_refuses_everything(
    client: Any, database: Any, line: bytes, status: int, said: str
) -> None:
    answer = client.post("/write", content=LINES.encode() + line)
    assert answer.status_code == status
    assert said in answer.json()["detail"]
    assert answer.json()["code"]
    assert database.stream("cpu").count == database.stream("mem").count == 0


def test_a_part_is_taken_where_that_is_asked(client: Any, database: Any) -> None:
    body = LINES.encode() + b"cpu usage=much 1\n"
    assert client.post("/api/v3/write_lp?accept_partial=true", content=body).status_code == 204
    assert database.stream("cpu").count == 2


def test_as_a_format(client: Any, database: Any) -> None:
    body = "anything,host=a usage=1.5 1533099600\n\nnone\n"
    asked = "/v1/streams/cpu/events?format=lineprotocol&precision=s"
    refused = client.post(asked, content=body)
    assert refused.status_code == 400
    assert refused.json()["errors"] == [
        {"row": 2, "line": 3, "reason": refused.json()["errors"][0]["reason"]}
    ]
    answer = client.post(asked + "&on_error=skip", content=body)
    assert (answer.json()["appended"], answer.json()["rejected"]) == (1, 1)
    media = {"Content-Type": "application/x-line-protocol"}
    assert client.post("/v1/streams/cpu/events", content="m usage=2", headers=media).is_success
    assert client.get("/v1/streams/cpu/events?format=lineprotocol").status_code == 406


def test_who_may_write(tmp_path: Path, serve_app: Callable[..., Any]) -> None:
    store = tmp_path / "guarded"
    _, writer = tokens.create_token(store, "writer", ["write"], ["cpu"])
    _, reader = tokens.create_token(store, "reader", ["read"])
    with chronicle.open(store) as database:
        database.sql(CPU)
        client = serve_app(database)
        for scheme in ("Bearer", "Token", "token"):
            headers = {"Authorization": f"{scheme} {writer}"}
            assert client.post("/write", content="cpu usage=1", headers=headers).is_success
            refused = client.post("/write", content=LINES, headers=headers)
            assert refused.status_code == 403  # mem is out of reach
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Token chr_wrong"}, 401),
            ({"Authorization": f"Basic {writer}"}, 401),
            ({"Authorization": f"Token {reader}"}, 403),
        ):
            found = client.post("/api/v2/write", content="cpu usage=1", headers=headers)
            assert found.status_code == status
        token = {"Authorization": f"Token {writer}"}
        assert client.get("/v1/streams", headers=token).status_code == 401
        assert database.stream("cpu").count == 3
