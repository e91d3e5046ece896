"""Routes that hand a request on, seen from the other side; and what the server does by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.tests.patience import wait_until


def test_dropping_a_stream_forgets_what_was_kept_for_it(fake: Any, client: Any) -> None:
    server = client.app.state.server
    for how in (
        lambda: client.delete("/v1/streams/flights"),
        lambda: client.post("/v1/query", json={"sql": "DROP STREAM flights"}),
    ):
        fake.names = ["flights"]
        with server.keys.request("flights", "k", "p") as work:
            work.answer = {}
        with server.snapshots.pin("flights"):
            pass
        assert (len(server.keys), len(server.snapshots)) == (1, 1)
        assert how().status_code in (200, 204)
        assert (len(server.keys), len(server.snapshots)) == (0, 0)


def test_unused_snapshots_are_let_go_by_themselves(
    fake: Any, serve_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chronicle.server.app.TIDY_EVERY_S", 0.01)
    client = serve_app(fake, snapshot_ttl_ms=1)
    server = client.app.state.server
    with server.snapshots.pin("flights"):
        pass
    wait_until(lambda: not len(server.snapshots))


def test_readiness_follows_the_store(fake: Any, client: Any) -> None:
    assert client.get("/readyz").status_code == 200

    def broken() -> list[str]:
        raise OSError("input/output error")

    fake.streams = broken
    response = client.get("/readyz")
    assert (response.status_code, response.json()["code"]) == (503, "not-ready")
    assert response.headers["retry-after"] == "1"
    assert client.get("/healthz").status_code == 200
    server = client.app.state.server
    server.prepared = False
    assert client.get("/readyz").json()["state"] == "starting"
    server.stopping = True
    assert client.get("/readyz").json()["state"] == "stopping"
    server.stopping, server.prepared = False, True


def test_tokens_are_managed_without_a_web_framework() -> None:
    import subprocess
    import sys

    script = (
        "import sys, chronicle.server; chronicle.server.create_token; "
        "print(sorted({'fastapi', 'uvicorn', 'duckdb', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_what_queries_spill_lies_where_nobody_else_can_look_or_wait(tmp_path: Path) -> None:
    """In a folder of this process alone, by a name that cannot be known before."""
    with chronicle.open(tmp_path / "a") as one, chronicle.open(tmp_path / "b") as two:
        places = []
        for database in (one, two):
            database.sql("SELECT range FROM range(3) ORDER BY 1").arrow()
            spill = catalog_of(database).engine.executor._spill
            assert spill is not None
            found = spill.path
            places.append(found)
            assert found.stat().st_mode & 0o777 == 0o700
            assert f"{id(catalog_of(database).engine.executor):x}" not in found.name
        assert places[0] != places[1]
    assert not any(place.exists() for place in places)
