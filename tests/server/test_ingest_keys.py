"""Files that are sent twice under one key are stored once, whatever became of the server."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from chronicle.errors import StorageFull
from chronicle.ingest.sinks import StoreSink
from chronicle.tests.patience import wait_until

from .test_server_process import Process, start  # noqa: F401

CSV = b"when;x\n" + b"".join(b"2026-03-01 08:%02d:00;%d.5\n" % (n, n) for n in range(20))
NEW = {"stream": "s", "create": True, "time": "when"}
KEY = {"Idempotency-Key": "file-1"}

HANGS = """
import sys, time
from pathlib import Path
from chronicle.ingest.sinks import StoreSink
from chronicle.server import load_settings, serve
reached = Path(sys.argv[1] + ".reached")
step = "STEP"

def hanging(work):
    def hang(*given, **more):
        work(*given, **more)
        reached.touch()
        time.sleep(600)
    return hang

setattr(StoreSink, step, hanging(getattr(StoreSink, step)))
serve(load_settings(store=sys.argv[1], port=int(sys.argv[2])))
"""
"""A server whose ingests stop for ever behind one step."""


def send(api: Any, body: bytes = CSV, headers: dict[str, str] = KEY, **params: Any) -> Any:
    return api.post("/v1/ingest", content=body, params=params, headers=headers)


def test_the_same_file_is_stored_once(database: Any, serve_app: Callable[..., Any]) -> None:
    api = serve_app(database, isolation="none")
    first = send(api, **NEW)
    assert (first.status_code, first.json()["count"]) == (200, 20), first.text
    assert "idempotency-replayed" not in first.headers
    again = send(api, **NEW)
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    assert database.stream("s").count == 20
    appended = send(api, headers={"Idempotency-Key": "file-2"}, stream="s").json()
    assert send(api, headers={"Idempotency-Key": "file-2"}, stream="s").json() == appended
    assert appended["count"] == database.stream("s").count == 40

    for body, params in (
        (CSV + b"2026-03-02 08:00:00;1\n", NEW),
        (CSV, NEW | {"on_error": "skip"}),
        (CSV, NEW | {"types": "x=real"}),
        (CSV, {"stream": "s"}),
    ):
        other = send(api, body, **params)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency-mismatch")
    event = [{"when": "2026-03-03T08:00:00", "x": 1.0}]
    other = api.post("/v1/streams/s/events", json=event, headers=KEY)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-mismatch")
    dry = send(api, **NEW, dry_run=True)
    assert (dry.status_code, "dry_run" in dry.json()["detail"]) == (400, True)
    assert database.stream("s").count == 40

    database.sql("ALTER STREAM s ADD COLUMN y BIGINT")
    assert [column["name"] for column in send(api, **NEW).json()["columns"]] == ["when", "x", "y"]
    assert api.delete("/v1/streams/s").status_code == 204
    assert send(api, **NEW).json()["created"]


def test_many_columns_are_not_remembered(database: Any, serve_app: Callable[..., Any]) -> None:
    api = serve_app(database, isolation="none")
    names = [f"a_column_with_a_long_name_{n}" for n in range(300)]
    body = ("when," + ",".join(names) + "\n2026-01-01" + ",1" * 300 + "\n").encode()
    first = send(api, body, **NEW)
    assert len(first.json()["columns"]) == 301
    assert send(api, body, **NEW).json() == first.json()
    log = Path(database.path) / "server" / "idempotency.wal"
    assert b"a_column_with" not in log.read_bytes()


def test_a_refused_file_frees_its_key(database: Any, serve_app: Callable[..., Any]) -> None:
    api = serve_app(database, isolation="none")
    bad = send(api, CSV + b"soon;1\n", **NEW)
    assert bad.status_code == 400, bad.text
    assert send(api, **NEW).json()["appended"] == 20


def test_a_full_disk_frees_the_key_of_a_stream_that_was_to_be_made(
    database: Any, serve_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = serve_app(database, isolation="none")

    def full(*given: Any) -> None:
        raise StorageFull("no space is left")

    with monkeypatch.context() as broken:
        broken.setattr(StoreSink, "append", full)
        answer = send(api, **NEW)
        assert (answer.status_code, answer.json()["code"]) == (507, "storage-full"), answer.text
        assert database.streams() == []
    assert send(api, **NEW).json()["appended"] == 20


def hang_up(server: Process, **params: Any) -> None:
    """Send the file to a server that never answers."""
    with pytest.raises(httpx.TransportError):
        send(server.http, **params)


@pytest.mark.crash
@pytest.mark.parametrize(("step", "made"), [("create", False), ("append", False), ("append", True)])
def test_a_server_that_is_killed_stores_no_file_twice(
    start: Callable[..., Process],  # noqa: F811
    tmp_path: Path,
    step: str,
    made: bool,
) -> None:
    """Behind the making of the stream the key is free; behind the commit nobody guesses."""
    server = start(program=HANGS.replace("STEP", step))
    if made:
        spec = {"name": "s", "time": "when", "schema": {"when": "timestamp", "x": "double"}}
        assert server.http.post("/v1/streams", json=spec).status_code == 201
    chosen = {"stream": "s"} if made else NEW
    sending = threading.Thread(target=hang_up, args=(server,), kwargs=chosen)
    sending.start()
    wait_until((tmp_path / "store.reached").exists)
    server.process.send_signal(signal.SIGKILL)
    sending.join()
    assert server.stop(signal.SIGKILL) == -signal.SIGKILL

    server = start()
    answer = send(server.http, **chosen)
    if step == "append":
        assert (answer.status_code, answer.json()["code"]) == (409, "idempotency-in-doubt")
    else:
        assert (answer.status_code, answer.json()["code"]) == (409, "stream-exists")
        more = NEW | {"if_exists": "append"}
        stored = send(server.http, **more).json()
        assert (stored["appended"], stored["count"]) == (20, 20)
        assert send(server.http, **more).json() == stored
    assert server.count() == 20
    assert server.stop() == 0
