"""Jobs outlive the server: one that is stopped, one that is killed, one that kills it."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import chronicle
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.server.access.settings import Settings
from chronicle.server.app import create_app
from chronicle.server.service.jobs import KEPT_MAX, KILLED_MAX, Job, Jobs
from chronicle.store.store import UNFINISHED
from chronicle.tests.patience import wait_until

from .conftest import Client
from .test_jobs import ended, fill, held, nothing  # noqa: F401
from .test_server_process import SPEC, Process, start  # noqa: F401

HANGS = """
import sys, time
from pathlib import Path
from chronicle.server import load_settings, serve
from chronicle.store import backup
from chronicle.catalog.streams import Stream
reached = Path(sys.argv[1] + ".reached")

def hanging(work):
    def hang(*given):
        done = work(*given)
        reached.touch()
        time.sleep(600)
        return done
    return hang

backup._backup_stream = hanging(backup._backup_stream)
Stream.update = hanging(Stream.update)
serve(load_settings(store=sys.argv[1], port=int(sys.argv[2])))
"""
"""A server whose backups stop for ever behind their first stream, and whose updates behind their
commit."""


def serving(database: Any, **settings: Any) -> contextlib.closing[Client]:
    app = create_app(database, Settings(store=database.path, **settings))
    return contextlib.closing(Client(app, "127.0.0.1"))


def files_of(database: Any) -> list[Path]:
    return sorted((Path(database.path) / "server" / "jobs.local").iterdir())


def test_what_a_stopped_server_left_is_done_by_the_next(
    database: Any,
    held: threading.Event,  # noqa: F811
) -> None:
    fill(database, "a", 100, late=5)
    with serving(database) as api:
        jobs = [
            api.post("/v1/jobs", json=body).json()
            for body in ({"kind": "check"}, {"kind": "compact"}, {"kind": "check"})
        ]
        path = f"/v1/jobs/{jobs[0]['job_id']}"
        wait_until(lambda: api.get(path).json()["state"] == "running")
        assert api.delete(f"/v1/jobs/{jobs[2]['job_id']}").status_code == 204
        kept = api.app.state.server.jobs

        def go_on() -> None:  # while the server waits for it
            wait_until(lambda: kept._stopping)
            held.set()

        threading.Thread(target=go_on).start()
    states = {r["id"]: r["state"] for r in (json.loads(p.read_text()) for p in files_of(database))}
    assert [states[job["job_id"]] for job in jobs] == ["waiting", "waiting", "cancelled"]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files_of(database))
    with serving(database) as api:
        found = [ended(api, job) for job in jobs]
        assert [job["state"] for job in found] == ["done", "done", "cancelled"]
        assert [job["begun"] for job in found] == [2, 1, 0]
        assert [job["created_at"] for job in found] == [job["created_at"] for job in jobs]
        assert found[0]["result"]["ok"]
    with serving(database) as api:
        assert api.get("/v1/jobs").json()["jobs"] == found


def test_an_index_goes_on_where_it_was(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = fill(database, "a", 100)
    building, listed = threading.Event(), StoreCatalog.list_indexes

    def slow(self: Any, name: str) -> list[dict[str, Any]]:
        state = {"state": "building"} if building.is_set() else {}
        return [found | state for found in listed(self, name)]

    monkeypatch.setattr(StoreCatalog, "list_indexes", slow)
    building.set()
    with serving(database) as api:
        body = {"kind": "index", "stream": "a", "attribute": "x"}
        job = api.post("/v1/jobs", json=body).json()
        wait_until(lambda: stream.indexes() != [])
    assert [found["attribute"] for found in stream.indexes()] == ["x"], "it was not cancelled"
    building.clear()
    with serving(database) as api:
        found = ended(api, job)
    assert (found["state"], found["begun"], found["result"]["attribute"]) == ("done", 2, "x")


def test_a_reader_keeps_no_jobs(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "store") as database:
        fill(database, "a", 100)
    with chronicle.open(tmp_path / "store", "r") as database:
        with serving(database) as api:
            assert ended(api, api.post("/v1/jobs", json={"kind": "check"}).json())["result"]["ok"]
        assert not (tmp_path / "store" / "server" / "jobs.local").exists()
        with serving(database) as api:
            assert api.get("/v1/jobs").json() == {"jobs": []}


def record(tmp_path: Path, **told: Any) -> Path:
    """The file of a job as an earlier server left it."""
    directory = tmp_path / "server" / "jobs.local"
    directory.mkdir(parents=True, exist_ok=True)
    job_id = told.get("id", "0123456789abcdef")
    made = Job(job_id, {"kind": "check"}, "me").record() | told
    (directory / f"{job_id}.json").write_text(json.dumps(made))
    return directory


def test_what_kills_the_server_is_not_begun_for_ever(tmp_path: Path) -> None:
    began = []
    for killed in range(KILLED_MAX):
        record(tmp_path, state="running", begun=killed + 1, killed=killed)
        jobs = Jobs(tmp_path)
        jobs.resume(lambda job: lambda job: began.append(job.begun) or {})
        (job,) = jobs.list()
        wait_until(lambda: job.ended is not None)  # noqa: B023
        jobs.stop()
    assert began == [2, 3]
    assert (job.state, job.owner, job.begun) == ("failed", "me", 3)
    assert job.error is not None
    assert "3 times" in job.error


def test_what_cannot_go_on_says_why(tmp_path: Path) -> None:
    record(tmp_path, state="running", begun=1)

    def gone(job: Job) -> Any:
        raise chronicle.StreamNotFound(f"no stream for {job.asked['kind']}")

    jobs = Jobs(tmp_path)
    jobs.resume(gone)
    (job,) = jobs.list()
    assert (job.state, job.error) == ("failed", "no stream for check")
    jobs.stop()


@pytest.mark.parametrize(
    "damage",
    [
        b"", b"{", b"[]", b"{}", b'{"id": 1}', b"\xff\x00",
        b'{"id": "0123456789abcdef", "asked": [], "owner": "", "state": "odd", "begun": 0}',
    ],
)  # fmt: skip
def test_files_that_are_none_keep_no_server_from_starting(tmp_path: Path, damage: bytes) -> None:
    directory = record(tmp_path, id="fedcba9876543210", state="done")
    (directory / "0123456789abcdef.json").write_bytes(damage)
    (directory / "0123456789abcdef.json.12ab.tmp").write_bytes(b"half")
    jobs = Jobs(tmp_path)
    jobs.resume(lambda job: nothing)
    assert [job.id for job in jobs.list()] == ["fedcba9876543210"]
    assert (directory / "0123456789abcdef.json").read_bytes() == damage
    assert len(list(directory.iterdir())) == 2
    jobs.stop()


def test_files_go_when_jobs_are_forgotten(tmp_path: Path) -> None:
    for number in range(KEPT_MAX):
        record(tmp_path, id=f"{number:016x}", state="done", ended="2026-01-01T00:00:00Z")
    jobs = Jobs(tmp_path)
    jobs.resume(lambda job: nothing)
    for _ in range(2):
        last = jobs.start({"kind": "check"}, "", nothing)
        wait_until(lambda: last.ended is not None)  # noqa: B023
    jobs.stop()
    assert len(list((tmp_path / "server" / "jobs.local").iterdir())) == KEPT_MAX + 1


def test_a_job_that_cannot_be_kept_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chronicle.server.service import jobs as module

    def full(path: Path, content: bytes) -> None:
        raise chronicle.StorageFull("no space is left")

    jobs = Jobs(tmp_path)
    monkeypatch.setattr(module, "replace_file", full)
    with pytest.raises(chronicle.StorageFull):
        jobs.start({"kind": "check"}, "", nothing)
    assert jobs.list() == []
    jobs.stop()


@pytest.mark.crash
def test_a_killed_server_begins_its_jobs_again(
    start: Callable[..., Process],  # noqa: F811
    tmp_path: Path,
) -> None:
    backups = {"CHRONICLE_BACKUP_DIRECTORY": str(tmp_path / "backups")}
    reached = tmp_path / "store.reached"
    server = start(program=HANGS, **backups)
    assert server.http.post("/v1/streams", json=SPEC).status_code == 201
    assert server.append(0, 20).status_code == 200
    asked = [
        {"kind": "backup", "name": "monday"},
        {"kind": "delete", "stream": "s", "where": "t < 5"},
        {"kind": "index", "stream": "s", "attribute": "x"},
    ]
    jobs = [server.http.post("/v1/jobs", json=body).json() for body in asked]
    wait_until(reached.exists)
    assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    assert (tmp_path / "backups" / "monday" / UNFINISHED).exists()
    server = start(**backups)
    found = [ended(server.http, job) for job in jobs]
    assert [(job["state"], job["begun"]) for job in found] == [
        ("done", 2),
        ("done", 1),
        ("done", 1),
    ]
    assert (found[0]["result"], found[1]["result"]) == ({"name": "monday"}, {"deleted": 5})
    assert server.count() == 15
    with chronicle.open(tmp_path / "backups" / "monday", mode="r") as copy:
        assert copy.stream("s").count == 20
        assert copy.check().ok
    assert (tmp_path / "backups" / "monday" / "server").is_dir()
    assert not (tmp_path / "backups" / "monday" / "server" / "jobs.local").exists()
    assert server.stop() == 0


@pytest.mark.crash
def test_an_update_is_never_done_twice(
    start: Callable[..., Process],  # noqa: F811
    tmp_path: Path,
) -> None:
    server = start(program=HANGS)
    server.http.post("/v1/streams", json=SPEC)
    server.append(0, 20)
    body = {"kind": "update", "stream": "s", "set": {"x": "x * 2"}, "where": "true"}
    job = server.http.post("/v1/jobs", json=body).json()
    wait_until((tmp_path / "store.reached").exists)
    server.stop(signal.SIGKILL)
    server = start()
    found = ended(server.http, job)
    assert (found["state"], "is not known" in found["error"]) == ("failed", True)
    rows = server.http.get("/v1/query", params={"q": "SELECT sum(x) AS x FROM s"}).json()["rows"]
    assert rows == [{"x": sum(range(20))}]
    assert server.stop() == 0
