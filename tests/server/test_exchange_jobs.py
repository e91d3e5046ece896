"""Exports and imports as jobs: files of a directory that the operator has set aside."""

from __future__ import annotations

import gzip
import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chronicle.server import create_token
from chronicle.server.routes import jobs
from chronicle.tests.patience import PATIENCE_S, wait_until

from .test_jobs import ended, fill
from .test_server_process import ENDLESS, SPEC, Process, start  # noqa: F401

CSV = b"when,x\n" + b"".join(b"2026-03-01 08:00:%02d,%d.5\n" % (n, n) for n in range(60))
SLOW = "SELECT a.range AS a, b.range AS b FROM range(100000) a, range(100000) b"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    found = tmp_path / "exchange"
    found.mkdir()
    return found


def run(api: Any, **body: Any) -> dict[str, Any]:
    begun = api.post("/v1/jobs", json=body)
    assert begun.status_code == 202, begun.text
    return ended(api, begun.json())


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_what_was_exported_is_imported(
    database: Any, serve_app: Callable[..., Any], files: Path, isolation: str
) -> None:
    fill(database, "a", 3000, late=10)
    api = serve_app(database, exchange_directory=files, isolation=isolation)
    job = run(api, kind="export", file="a.parquet", stream="a")
    assert (job["state"], job["result"]["rows"], job["progress"]) == ("done", 3010, 1.0), job
    assert job["result"]["bytes"] == (files / "a.parquet").stat().st_size
    written = pq.read_table(files / "a.parquet")
    assert written.to_pydict() == database.stream("a").scan().read_all().to_pydict()
    job = run(api, kind="export", file="top.ndjson", sql="SELECT max(x) AS top FROM a")
    assert json.loads((files / "top.ndjson").read_text()) == {"top": 1.5}
    chosen = {"stream": "b", "create": True, "time": "t", "time_format": "ticks"}
    job = run(api, kind="import", file="a.parquet", **chosen)
    assert job["state"] == "done", job
    assert job["result"].items() >= {"created": True, "appended": 3010, "count": 3010}.items()
    stored = [database.stream(name).scan().read_all() for name in "ab"]
    assert stored[0].equals(stored[1])
    (files / "pumps.csv.gz").write_bytes(gzip.compress(CSV))
    job = run(api, kind="import", file="pumps.csv.gz", stream="pumps", create=True, time="when")
    assert job["result"]["appended"] == 60, job
    (files / "bad.csv").write_bytes(CSV + b"soon,1\n")
    job = run(api, kind="import", file="bad.csv", stream="pumps")
    assert (job["state"], "found 'soon'" in job["error"]) == ("failed", True)
    job = run(api, kind="import", file="bad.csv", stream="pumps", bad_rows="skip")
    assert (job["result"]["appended"], job["result"]["rejected"]) == (60, 1)
    assert database.stream("pumps").count == 120
    (files / "local.csv").write_bytes(b"day,clock,x\n05.07.2026,12:00,1\n2026-01-06,13:00,2\n")
    local = {"time_zone": "Europe/Berlin", "time_format": ["%d.%m.%Y %H:%M", "iso"]}
    local |= {"time": "day", "time_of_day": "clock", "ambiguous": "later"}
    job = run(api, kind="import", file="local.csv", stream="local", create=True, **local)
    assert job["result"]["appended"] == 2, job
    assert job.items() >= local.items()
    assert [str(t) for t in database.stream("local").scan().read_all()["day"].to_pylist()] == [
        "2026-01-06 12:00:00", "2026-07-05 10:00:00",
    ]  # fmt: skip
    assert sorted(path.name for path in files.iterdir()) == [
        "a.parquet", "bad.csv", "local.csv", "pumps.csv.gz", "top.ndjson",
    ]  # fmt: skip


def test_what_cannot_be_done_is_said_at_once(
    database: Any, serve_app: Callable[..., Any], files: Path
) -> None:
    fill(database, "a", 10)
    (files / "there.csv").write_bytes(CSV)
    (files / "link.csv").symlink_to("/etc/passwd")
    (files / "folder").mkdir()
    api = serve_app(database, exchange_directory=files, isolation="none")
    nowhere = serve_app(database, isolation="none")
    for body, status in (
        ({"kind": "export", "file": "../a.csv", "stream": "a"}, 400),
        ({"kind": "export", "file": "/tmp/a.csv", "stream": "a"}, 400),
        ({"kind": "export", "file": ".a.csv", "stream": "a"}, 400),
        ({"kind": "export", "file": "there.csv", "stream": "a"}, 400),
        ({"kind": "export", "file": "a.exe", "stream": "a"}, 400),
        ({"kind": "export", "file": "a.csv.gz", "stream": "a"}, 400),
        ({"kind": "export", "file": "a.csv"}, 400),
        ({"kind": "export", "file": "a.csv", "stream": "a", "sql": "SELECT 1"}, 400),
        ({"kind": "export", "file": "a.csv", "stream": "none"}, 404),
        ({"kind": "export", "file": "a.csv", "sql": "SELECT nothing"}, 400),
        ({"kind": "export", "file": "a.csv", "sql": "DROP STREAM a"}, 400),
        ({"kind": "export", "stream": "a"}, 422),
        ({"kind": "import", "file": "none.csv", "stream": "a"}, 400),
        ({"kind": "import", "file": "link.csv", "stream": "a"}, 400),
        ({"kind": "import", "file": "folder", "stream": "a"}, 400),
        ({"kind": "import", "file": "../there.csv", "stream": "a"}, 400),
        ({"kind": "import", "file": "there.csv", "stream": "none"}, 404),
        ({"kind": "import", "file": "there.csv"}, 422),
        ({"kind": "import", "file": "there.csv", "stream": "a", "wish": 1}, 422),
    ):
        answer = api.post("/v1/jobs", json=body)
        assert answer.status_code == status, (body, answer.text)
        assert str(files) not in answer.text
        if status == 400:
            told = nowhere.post("/v1/jobs", json=body).json()["detail"]
            assert "CHRONICLE_EXCHANGE_DIRECTORY" in told
    assert api.get("/v1/jobs").json() == {"jobs": []}


def test_a_cancelled_export_leaves_nothing(
    database: Any, serve_app: Callable[..., Any], files: Path
) -> None:
    api = serve_app(database, exchange_directory=files, isolation="none")
    job = api.post("/v1/jobs", json={"kind": "export", "file": "a.csv", "sql": SLOW}).json()
    wait_until(lambda: list(files.iterdir()) != [])
    assert api.delete(f"/v1/jobs/{job['job_id']}").status_code == 204
    assert ended(api, job)["state"] == "cancelled"
    assert list(files.iterdir()) == []


def test_a_cancelled_import_stores_nothing(
    database: Any, serve_app: Callable[..., Any], files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "a.csv").write_bytes(CSV)
    reached, go_on = threading.Event(), threading.Event()

    class Slow(jobs._JobProgress):
        def phase(self, name: str, total: int | None) -> None:
            if name == "storing":
                reached.set()
                go_on.wait(PATIENCE_S)
            super().phase(name, total)

    monkeypatch.setattr(jobs, "_JobProgress", Slow)
    api = serve_app(database, exchange_directory=files, isolation="none")
    body = {"kind": "import", "file": "a.csv", "stream": "s", "create": True, "time": "when"}
    job = api.post("/v1/jobs", json=body).json()
    assert reached.wait(PATIENCE_S)
    assert api.delete(f"/v1/jobs/{job['job_id']}").status_code == 204
    go_on.set()
    assert ended(api, job)["state"] == "cancelled"
    assert database.streams() == []


def test_who_may_what(database: Any, serve_app: Callable[..., Any], files: Path) -> None:
    fill(database, "a", 10)
    fill(database, "b", 10)
    (files / "in.csv").write_bytes(b"t,x\n99,1\n")

    def token(*scopes: str, streams: tuple[str, ...] = ("a*",)) -> dict[str, str]:
        name = "".join(scopes)
        return {"authorization": f"Bearer {create_token(database.path, name, scopes, streams)[1]}"}

    operator, reader = token("operate"), token("operate", "read")
    writer, everything = token("operate", "ingest"), token("operate", "read", streams=("*",))
    api = serve_app(database, exchange_directory=files, isolation="none")

    def code(headers: dict[str, str], **body: Any) -> int:
        return int(api.post("/v1/jobs", json=body, headers=headers).status_code)

    export = {"kind": "export", "file": "a.csv"}
    assert code(operator, **export, stream="a") == 403
    assert code(reader, **export, stream="b") == 403
    assert code(reader, **export, sql="SELECT * FROM a") == 403, "a query may name any stream"
    assert code(reader, **export, stream="a") == 202
    assert code(everything, **{**export, "file": "b.csv"}, sql="SELECT * FROM b") == 202
    load = {"kind": "import", "file": "in.csv"}
    assert code(reader, **load, stream="a") == 403
    assert code(writer, **load, stream="b") == 403
    assert code(writer, **load, stream="a2", create=True, time="t") == 403
    assert code(writer, **load, stream="a") == 202


@pytest.mark.crash
def test_a_killed_server_writes_its_export_again(
    start: Callable[..., Process],  # noqa: F811
    files: Path,
) -> None:
    more = {"CHRONICLE_EXCHANGE_DIRECTORY": str(files)}
    server = start(**more)
    assert server.http.post("/v1/streams", json=SPEC).status_code == 201
    assert server.append(0, 50).status_code == 200
    text = f"SELECT count(*) AS n FROM ({ENDLESS}) WHERE a * b % 7 = 3"  # until it is cancelled
    slow = {"kind": "export", "file": "slow.csv", "sql": text}
    slow = server.http.post("/v1/jobs", json=slow).json()
    wait_until(lambda: ended_or_running(server, slow) == "running")
    job = server.http.post("/v1/jobs", json={"kind": "export", "file": "s.csv", "stream": "s"})
    (files / f".s.csv.{job.json()['job_id']}.0a1b2c3d.part").write_bytes(b"half")
    assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    server = start(**more)
    assert server.http.delete(f"/v1/jobs/{slow['job_id']}").status_code == 204
    found = ended(server.http, job.json())
    assert (found["state"], found["result"]["rows"]) == ("done", 50), found
    wait_until(lambda: [path.name for path in files.iterdir()] == ["s.csv"])
    assert server.stop() == 0


def ended_or_running(server: Process, job: dict[str, Any]) -> str:
    return str(server.http.get(f"/v1/jobs/{job['job_id']}").json()["state"])


def test_a_stream_of_any_name_is_exported(
    database: Any, serve_app: Callable[..., Any], files: Path
) -> None:
    name = 'odd "name'
    database.create_stream(name, pa.schema([("t", pa.int64())]), time="t")
    database.stream(name).append([{"t": 5}])
    api = serve_app(database, exchange_directory=files, isolation="none")
    job = run(api, kind="export", file="odd.csv", stream=name)
    assert (job["state"], (files / "odd.csv").read_bytes()) == ("done", b"t\r\n5\r\n")
