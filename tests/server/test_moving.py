"""A server that moves segments by itself: settings, metrics, and what it says of trouble."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

import chronicle
from chronicle.errors import StorageFailed
from chronicle.store import moving
from chronicle.store.object_store import ObjectStore
from chronicle.tests.patience import wait_until

COLUMNS = {"t": "timestamp", "x": "bigint"}
OPTIONS = {
    "move_after": "100 seconds", "leaf_bytes": 4096, "segment_bytes": 32768,
    "compaction": "manual",
}  # fmt: skip


def body(first: int, count: int) -> str:
    moments = (time.gmtime(10**9 + first + n) for n in range(count))
    times = [time.strftime("%Y-%m-%dT%H:%M:%SZ", moment) for moment in moments]
    draw = random.Random(first)
    rows = [{"t": at, "x": draw.randrange(2**62)} for at in times]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def gauges(api: Any) -> dict[str, float]:
    lines = api.get("/metrics").text.splitlines()
    pairs = [line.split(" ") for line in lines if line.startswith("chronicle_store_")]
    return {name.removeprefix("chronicle_store_"): float(value) for name, value in pairs}


def test_a_server_moves_what_is_due(
    tmp_path: Path, serve_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(moving, "RETRY_SECONDS", 0.05)
    objects = f"file://{tmp_path}/objects"
    put, broken = ObjectStore.put, {"on": True}

    def refused(self: ObjectStore, key: str, parts: Any) -> None:
        if broken["on"]:
            raise StorageFailed("the bucket is on fire")
        put(self, key, parts)

    monkeypatch.setattr(ObjectStore, "put", refused)
    with chronicle.open(tmp_path / "store", objects=objects) as database:
        api = serve_app(database)
        made = api.post(
            "/v1/streams", json={"name": "s", "time": "t", "schema": COLUMNS, "options": OPTIONS}
        )
        assert made.status_code == 201, made.text
        assert made.json()["settings"]["move_after"] == "100 seconds"
        for first in range(0, 20_000, 2000):
            sent = api.post(
                "/v1/streams/s/events", content=body(first, 2000),
                headers={"Content-Type": "application/x-ndjson"},
            )  # fmt: skip
            assert sent.status_code == 200, sent.text
        database.stream("s").seal()
        wait_until(lambda: gauges(api)["moves_failed_total"] > 0)
        found = gauges(api)
        assert found["due_segments"] > 0 < found["due_bytes"]
        assert found["moves_failing_seconds"] > 0
        told = api.get("/v1/status").json()["moving"]
        assert told["state"] == "failing"
        assert "on fire" in told["error"]
        broken["on"] = False
        wait_until(lambda: gauges(api)["due_segments"] == 0)
        wait_until(lambda: gauges(api)["moves_failing_seconds"] == 0)
        found = gauges(api)
        assert found["cold_segments"] == found["moved_segments"] > 0
        assert found["cold_bytes"] == found["moved_bytes"] > 0
        described = api.get("/v1/streams/s").json()
        assert described["stats"]["cold_segments"] == found["cold_segments"]
        assert described["count"] == 20_000


def test_a_job_moves_what_is_due(tmp_path: Path, serve_app: Any) -> None:
    with chronicle.open(tmp_path / "store") as database:
        api = serve_app(database, objects=f"file://{tmp_path}/objects")
        database.sql(
            "CREATE STREAM s (t TIMESTAMP, x BIGINT) TIMESTAMP BY t "
            "WITH (keep_local_bytes = '0 GB')"
        )
        database.stream("s").append([{"t": f"2020-01-01T00:00:{n:02}", "x": n} for n in range(60)])
        database.stream("s").seal()
        wrong = api.post("/v1/jobs", json={"kind": "move", "due": True, "older_than": "1 s"})
        assert wrong.status_code == 400
        begun = api.post("/v1/jobs", json={"kind": "move", "due": True}).json()["job_id"]
        wait_until(lambda: api.get(f"/v1/jobs/{begun}").json()["state"] == "done")
        done = api.get(f"/v1/jobs/{begun}").json()
        assert done["result"]["streams"]["s"]["segments"] == 1
        assert gauges(api)["moves_failed_total"] == 0
