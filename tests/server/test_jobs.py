"""Jobs: long work on a store that is served, with progress, cancellation and rights."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.server import create_token
from chronicle.server.service.jobs import WAITING_MAX, Job, Jobs
from chronicle.store.backup import restore_backup
from chronicle.store.object_store import ObjectStore
from chronicle.store.progress import each, watched_by
from chronicle.tests.patience import PATIENCE_S, wait_until


def fill(database: Any, name: str, count: int = 4000, late: int = 0) -> Any:
    database.sql(f"CREATE STREAM {name} (t BIGINT, x DOUBLE) TIMESTAMP BY t")
    stream = database.stream(name)
    stream.append(pa.table({"t": list(range(10, 10 + count)), "x": [0.5] * count}))
    stream.seal()
    if late:
        stream.append(pa.table({"t": list(range(late)), "x": [1.5] * late}))
    return stream


def ended(api: Any, job: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Wait for a job."""
    path = f"/v1/jobs/{job['job_id']}"
    wait_until(lambda: api.get(path, **more).json()["ended_at"] is not None)
    found: dict[str, Any] = api.get(path, **more).json()
    return found


def test_loops_within_loops_make_one_share() -> None:
    told: list[float] = []
    assert list(each([1, 2])) == [1, 2]
    with watched_by(told.append):
        for outer in each("ab"):
            for _ in each([] if outer == "a" else [1, 2, 3, 4]):
                pass
        for number in each(range(10)):
            if number == 5:
                break
        assert told == [0, 0.5, 0.5, 0.625, 0.75, 0.875, 0, 0.1, 0.2, 0.3, 0.4, 0.5]
        told.clear()
        list(each([7]))
        assert told == [0]


def test_a_backup_is_written_while_the_server_serves(
    database: Any, serve_app: Callable[..., Any], tmp_path: Path
) -> None:
    fill(database, "a")
    api = serve_app(database, backup_directory=tmp_path / "backups")
    begun = api.post("/v1/jobs", json={"kind": "backup", "name": "monday"})
    assert begun.status_code == 202
    assert begun.headers["location"] == f"/v1/jobs/{begun.json()['job_id']}"
    job = ended(api, begun.json())
    assert (job["state"], job["progress"], job["result"]) == ("done", 1.0, {"name": "monday"})
    with chronicle.open(tmp_path / "backups" / "monday", mode="r") as copy:
        assert copy.stream("a").count == 4000
    again = api.post("/v1/jobs", json={"kind": "backup", "name": "monday"})
    assert (again.status_code, "already" in again.json()["detail"]) == (400, True)
    named = ended(api, api.post("/v1/jobs", json={"kind": "backup"}).json())
    assert (tmp_path / "backups" / named["result"]["name"] / "CHRONICLE").is_dir()

    def ran() -> list[tuple[str, str]]:
        lines = (Path(database.path) / "server" / "audit.log").read_text().splitlines()
        found = [line for line in map(json.loads, lines) if line.get("did") == "ran a job"]
        return [(line["asked"]["kind"], line["state"]) for line in found]

    wait_until(lambda: ran() == [("backup", "done")] * 2)
    listed = api.get("/v1/backups").json()
    assert listed["configured"]
    names = {told["name"]: (told["state"], told["streams"]) for told in listed["backups"]}
    assert names == dict.fromkeys(("monday", named["result"]["name"]), ("whole", {"a": 4000}))


def test_what_cannot_be_done_is_said_at_once(
    database: Any, serve_app: Callable[..., Any], tmp_path: Path
) -> None:
    stream = fill(database, "a", 10)
    stream.add_column("known", pa.int64())
    stream.create_index("known")
    api = serve_app(database, backup_directory=tmp_path / "backups")
    for body, status in (
        ({"kind": "backup", "name": "../out"}, 400),
        ({"kind": "backup", "name": "/tmp/out"}, 400),
        ({"kind": "backup", "name": ".."}, 400),
        ({"kind": "backup", "name": ""}, 400),
        ({"kind": "backup", "name": "a\n"}, 400),
        ({"kind": "backup", "name": "a", "streams": ["a"]}, 422),
        ({"kind": "check", "name": "a"}, 422),
        ({"kind": "check", "streams": []}, 422),
        ({"kind": "compact", "streams": ["nothing"]}, 404),
        ({"kind": "index", "stream": "nothing", "attribute": "x"}, 404),
        ({"kind": "index", "stream": "a", "attribute": "y"}, 404),
        ({"kind": "index", "stream": "a", "attribute": "known"}, 409),
        ({"kind": "index", "stream": "a"}, 422),
        ({"kind": "delete", "stream": "a"}, 400),
        ({"kind": "delete", "stream": "a", "where": "x >"}, 400),
        ({"kind": "delete", "stream": "a", "start": "soon"}, 400),
        ({"kind": "delete", "stream": "a", "end": 10**40}, 400),
        ({"kind": "delete", "stream": "nothing", "where": "true"}, 404),
        ({"kind": "update", "stream": "a", "where": "true"}, 422),
        ({"kind": "update", "stream": "a", "set": {"x": "1 +"}, "where": "true"}, 400),
        ({"kind": "repair"}, 422),
        ({"kind": "check", "wish": 1}, 422),
        ({}, 422),
    ):
        assert api.post("/v1/jobs", json=body).status_code == status, body
    assert api.get("/v1/jobs").json() == {"jobs": []}
    assert not (tmp_path / "backups").exists()
    nowhere = serve_app(database).post("/v1/jobs", json={"kind": "backup"})
    assert (nowhere.status_code, "BACKUP_DIRECTORY" in nowhere.json()["detail"]) == (400, True)


def test_segments_are_moved(database: Any, serve_app: Callable[..., Any], tmp_path: Path) -> None:
    fill(database, "a", 100).seal()
    body = {"kind": "move", "streams": ["a"]}
    nowhere = serve_app(database).post("/v1/jobs", json=body)
    assert (nowhere.status_code, "CHRONICLE_OBJECTS" in nowhere.json()["detail"]) == (400, True)
    api = serve_app(database, objects=f"file://{tmp_path}/objects")
    for moved in (1, 0):
        found = ended(api, api.post("/v1/jobs", json=body).json())
        assert found["result"]["streams"]["a"]["segments"] == moved
    assert list((tmp_path / "objects").rglob("*.seg"))
    assert database.stream("a").count == 100
    failed = ended(api, api.post("/v1/jobs", json={**body, "older_than": "soon"}).json())
    assert (failed["state"], "older_than" in failed["error"] or "age" in failed["error"]) == (
        "failed", True,
    )  # fmt: skip


def test_check_says_what_is_wrong(database: Any, serve_app: Callable[..., Any]) -> None:
    stream = fill(database, "a")
    fill(database, "b", 10)
    api = serve_app(database)
    found = ended(api, api.post("/v1/jobs", json={"kind": "check"}).json())
    assert found["result"].items() >= {"ok": True, "streams": 2, "events": 4010}.items()
    segment = next(
        (Path(database.path) / catalog_of(database).store.directory_of("a")).glob("*.seg")
    )
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(bytes(content))
    found = ended(api, api.post("/v1/jobs", json={"kind": "check"}).json())
    assert (found["state"], found["result"]["ok"]) == ("done", False)
    assert any(segment.name in problem for problem in found["result"]["problems"])
    assert stream.count == 4000


def test_a_check_holds_nobody_up(
    database: Any, serve_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events are appended, and segments folded away, while their files are checked."""
    stream = fill(database, "a", late=50)
    reached, go = threading.Event(), threading.Event()
    from chronicle.store import check

    look = check.check_view

    def slow(*given: Any) -> None:
        reached.set()
        assert go.wait(PATIENCE_S)
        look(*given)

    monkeypatch.setattr(check, "check_view", slow)
    api = serve_app(database)
    job = api.post("/v1/jobs", json={"kind": "check"}).json()
    assert reached.wait(PATIENCE_S)
    assert api.post("/v1/streams/a/events", json=[{"t": 99_999, "x": 1.0}]).status_code == 200
    before = {path.name for path in (Path(database.path) / "streams").rglob("*.seg")}
    stream.compact()
    assert before - {path.name for path in (Path(database.path) / "streams").rglob("*.seg")}
    assert api.get("/v1/streams/a/events?limit=1").json() == [{"t": 0, "x": 1.5}]
    assert api.get(f"/v1/jobs/{job['job_id']}").json()["state"] == "running"
    go.set()
    found = ended(api, job)
    assert (found["state"], found["result"]["problems"]) == ("done", [])
    assert found["result"]["events"] == 4050


def test_compact_folds_late_events(database: Any, serve_app: Callable[..., Any]) -> None:
    for name in ("a", "b"):
        fill(database, name, late=50)
    assert database.stream("a").stats()["late_buffered"] == 50
    api = serve_app(database)
    found = ended(api, api.post("/v1/jobs", json={"kind": "compact", "streams": ["a"]}).json())
    assert found["result"] == {"streams": ["a"]}
    late = [database.stream(name).stats()["late_buffered"] for name in ("a", "b")]
    assert late == [0, 50]
    found = ended(api, api.post("/v1/jobs", json={"kind": "compact"}).json())
    assert found["result"] == {"streams": ["a", "b"]}
    assert database.stream("b").stats()["late_buffered"] == 0


def test_changes_of_a_stream(database: Any, serve_app: Callable[..., Any]) -> None:
    stream = fill(database, "a", 4000, late=50)
    api = serve_app(database)

    def run(**asked: Any) -> Any:
        job = ended(api, api.post("/v1/jobs", json={"stream": "a", **asked}).json())
        assert (job["state"], job["begun"]) == ("done", 1), job
        assert asked.items() <= job.items()
        return job["result"]

    built = run(kind="index", attribute="x", lag_events_max=100_000)
    assert built.items() >= {"attribute": "x"}.items()
    (index,) = stream.indexes()
    assert (index["state"], index["lag_events_max"]) == ("ready", 100_000)
    assert run(kind="update", set={"x": "x + 1"}, where="x > 1", end="20") == {"updated": 20}
    assert run(kind="delete", where="x = 2.5") == {"deleted": 20}
    assert run(kind="delete", start=30) == {"deleted": 4000}
    assert stream.count == 30
    wrong = api.post("/v1/jobs", json={"kind": "delete", "stream": "a", "where": "y = 1"})
    job = ended(api, wrong.json())
    assert (job["state"], "no column 'y'" in job["error"]) == ("failed", True)


def test_an_index_that_is_not_wanted_any_more_is_dropped(
    database: Any, serve_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = fill(database, "a")
    listed = StoreCatalog.list_indexes
    monkeypatch.setattr(
        StoreCatalog,
        "list_indexes",
        lambda self, name: [{**f, "state": "building"} for f in listed(self, name)],
    )
    api = serve_app(database)
    job = api.post("/v1/jobs", json={"kind": "index", "stream": "a", "attribute": "x"}).json()
    wait_until(lambda: stream.indexes() != [])
    assert api.delete(f"/v1/jobs/{job['job_id']}").status_code == 204
    assert ended(api, job)["state"] == "cancelled"
    assert stream.indexes() == []


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Checks that begin, and go on when they are let."""
    from chronicle.store import check

    go, look = threading.Event(), check.check_view

    def slow(*given: Any) -> None:
        assert go.wait(PATIENCE_S)
        look(*given)

    monkeypatch.setattr(check, "check_view", slow)
    yield go
    go.set()


def test_jobs_take_turns_and_can_be_cancelled(
    database: Any, serve_app: Callable[..., Any], held: threading.Event
) -> None:
    for name in ("a", "b", "c", "d"):
        fill(database, name, 100)
    api = serve_app(database)
    first = api.post("/v1/jobs", json={"kind": "check"}).json()
    second = api.post("/v1/jobs", json={"kind": "check"}).json()
    third = api.post("/v1/jobs", json={"kind": "compact"}).json()
    wait_until(lambda: api.get(f"/v1/jobs/{first['job_id']}").json()["state"] == "running")
    assert api.get(f"/v1/jobs/{second['job_id']}").json()["state"] == "waiting"
    assert api.delete(f"/v1/jobs/{second['job_id']}").status_code == 204
    assert ended(api, second)["state"] == "cancelled"
    assert api.delete(f"/v1/jobs/{first['job_id']}").status_code == 204
    held.set()
    found = ended(api, first)
    assert (found["state"], found["result"], found["error"]) == ("cancelled", None, None)
    assert found["progress"] < 1
    assert ended(api, third)["state"] == "done"
    assert api.delete(f"/v1/jobs/{third['job_id']}").status_code == 204
    assert ended(api, third)["state"] == "done", "what has ended stays"
    listed = [job["job_id"] for job in api.get("/v1/jobs").json()["jobs"]]
    assert listed == [job["job_id"] for job in (first, second, third)]
    assert api.get("/v1/jobs/nothing").status_code == 404
    assert api.delete("/v1/jobs/nothing").status_code == 404


def test_a_cancelled_backup_leaves_nothing(
    database: Any,
    serve_app: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from chronicle.store import backup

    for name in ("a", "b"):
        fill(database, name, 100)
    reached, go = threading.Event(), threading.Event()
    copy = backup._backup_stream

    def slow(*given: Any) -> None:
        copy(*given)
        reached.set()
        assert go.wait(PATIENCE_S)

    monkeypatch.setattr(backup, "_backup_stream", slow)
    api = serve_app(database, backup_directory=tmp_path / "backups")
    job = api.post("/v1/jobs", json={"kind": "backup", "name": "x"}).json()
    assert reached.wait(PATIENCE_S)
    assert (tmp_path / "backups" / "x").is_dir()
    api.delete(f"/v1/jobs/{job['job_id']}")
    go.set()
    assert ended(api, job)["state"] == "cancelled"
    assert list((tmp_path / "backups").iterdir()) == []


def test_a_backup_goes_to_objects(
    database: Any, serve_app: Callable[..., Any], tmp_path: Path
) -> None:
    fill(database, "a")
    address = f"file://{tmp_path}/objects"
    api = serve_app(database, backup_directory=address)
    assert api.get("/v1/backups").json() == {"configured": True, "backups": []}
    job = ended(api, api.post("/v1/jobs", json={"kind": "backup", "name": "monday"}).json())
    assert (job["state"], job["progress"], job["result"]) == ("done", 1.0, {"name": "monday"})
    (told,) = api.get("/v1/backups").json()["backups"]
    assert (told["name"], told["state"], told["streams"]) == ("monday", "whole", {"a": 4000})
    again = ended(api, api.post("/v1/jobs", json={"kind": "backup", "name": "monday"}).json())
    assert (again["state"], "already" in str(again)) == ("failed", True)
    restore_backup(ObjectStore(address), tmp_path / "again")
    with chronicle.open(tmp_path / "again", mode="r") as copy:
        assert copy.stream("a").count == 4000


def test_who_sees_and_does_what(
    database: Any, serve_app: Callable[..., Any], tmp_path: Path
) -> None:
    fill(database, "a", late=5)
    fill(database, "b", 10)
    keys = {
        name: {"headers": {"authorization": f"Bearer {create_token(database.path, *made)[1]}"}}
        for name, made in {
            "all": ("all", ["operate"]),
            "some": ("some", ["operate"], ["a*"]),
            "other": ("other", ["operate"], ["b*"]),
            "boss": ("boss", ["admin"], ["a*"]),
        }.items()
    }
    api = serve_app(database, backup_directory=tmp_path / "backups")

    def begin(who: str, **body: Any) -> Any:
        return api.post("/v1/jobs", json=body, **keys[who])

    for kind in ("backup", "check", "compact"):
        assert begin("some", kind=kind).status_code == 403
    assert api.get("/v1/backups", **keys["some"]).status_code == 403
    assert api.get("/v1/backups", **keys["all"]).json() == {"configured": True, "backups": []}
    assert begin("some", kind="compact", streams=[]).status_code == 403
    assert begin("some", kind="compact", streams=["a", "b"]).status_code == 403
    for changed in (
        {"kind": "delete", "where": "true"},
        {"kind": "update", "where": "true", "set": {"x": "1"}},
        {"kind": "index", "attribute": "x"},
    ):
        assert begin("all", stream="a", **changed).status_code == 403
        assert begin("boss", stream="b", **changed).status_code == 403
        assert begin("boss", stream="a", **changed).status_code == 202
    mine = begin("some", kind="compact", streams=["a"])
    assert mine.status_code == 202
    path = f"/v1/jobs/{mine.json()['job_id']}"
    assert ended(api, mine.json(), **keys["all"])["state"] == "done"
    assert api.get(path, **keys["some"]).status_code == 200
    assert api.get(path, **keys["other"]).status_code == 404
    assert api.delete(path, **keys["other"]).status_code == 404
    assert api.get("/v1/jobs", **keys["other"]).json() == {"jobs": []}
    assert len(api.get("/v1/jobs", **keys["all"]).json()["jobs"]) == 4


def nothing(job: Job) -> dict[str, Any]:
    """Work that is done at once."""
    return {}


def test_what_fails_says_why_and_jobs_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chronicle.server.service.jobs.KEPT_MAX", 10)
    jobs = Jobs(tmp_path)
    (tmp_path / "server").mkdir()

    def fail(job: Job) -> dict[str, Any]:
        raise ZeroDivisionError("where files lie: /secret")

    try:
        job = jobs.start({"kind": "check"}, "", fail)
        wait_until(lambda: job.ended is not None)
        assert (job.state, job.result) == ("failed", None)
        assert job.error is not None
        assert "secret" not in job.error
        for _ in range(15):
            last = jobs.start({"kind": "check"}, "", nothing)
            wait_until(lambda: last.ended is not None)  # noqa: B023
        assert len(jobs.list()) == 10 + 1
        assert jobs.find(job.id) is None
        go = threading.Event()
        jobs.start({"kind": "check"}, "", lambda _: {"waited": go.wait(PATIENCE_S)})
        wait_until(lambda: any(each.state == "running" for each in jobs.list()))
        for _ in range(WAITING_MAX):
            jobs.start({"kind": "check"}, "", nothing)
        with pytest.raises(Exception, match="jobs wait already"):
            jobs.start({"kind": "check"}, "", nothing)
        go.set()
    finally:
        jobs.stop()
    assert {job.state for job in jobs.list()} <= {"done", "waiting", "failed"}
    with pytest.raises(Exception, match="stopping"):
        jobs.start({"kind": "check"}, "", nothing)
