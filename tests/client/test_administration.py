"""Tokens and jobs of a server, by both clients."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.client import RemoteDatabase, live
from chronicle.client.calls import Call
from chronicle.tests.patience import PATIENCE_S
from chronicle.tests.server.test_jobs import held  # noqa: F401

from .test_transport import OK, Serve, serve  # noqa: F401

SCHEMA = pa.schema([pa.field("t", pa.int64(), False), pa.field("x", pa.float64())])
ROWS = pa.table({"t": list(range(1000)), "x": [0.5] * 1000})


@pytest.fixture
def remote(served: Any) -> Iterator[RemoteDatabase]:
    with chronicle.connect(served.url) as database:
        database.create_stream("s", SCHEMA, time="t").append(ROWS)
        yield database


def test_a_job_is_begun_and_waited_for(served: Any, remote: RemoteDatabase) -> None:
    job = remote.start_job("index", stream="s", attribute="x")
    told: list[dict[str, Any]] = []
    assert job.wait(PATIENCE_S, told.append)["attribute"] == "x"
    assert told[-1] == job.status() == remote.job(job.id).status() == remote.jobs()[0]
    assert (job.kind, told[-1]["state"], told[-1]["progress"]) == ("index", "done", 1.0)
    assert job.wait() == told[-1]["result"]
    assert remote.start_job("delete", stream="s", where="t < 10").wait(PATIENCE_S) == {
        "deleted": 10
    }
    assert [status["kind"] for status in remote.jobs()] == ["index", "delete"]
    assert served.database.stream("s").count == 990
    assert job.id in repr(job)


def test_backups_are_listed(served: Any, remote: RemoteDatabase, tmp_path: Path) -> None:
    assert remote.backups() == []
    server = served.app.state.server
    place = {"backup_directory": tmp_path / "backups"}
    server.settings = server.settings.model_copy(update=place)
    remote.start_job("backup", name="monday").wait(PATIENCE_S)
    (told,) = remote.backups()
    assert (told["name"], told["state"], told["streams"]) == ("monday", "whole", {"s": 1000})

    async def listed() -> list[dict[str, Any]]:
        async with chronicle.aconnect(served.url) as database:
            return await database.backups()

    assert asyncio.run(listed()) == [told]


def test_a_job_that_is_not_done_is_an_error(
    remote: RemoteDatabase,
    held: threading.Event,  # noqa: F811
    served: Any,
) -> None:
    served.database.stream("s").seal()
    running, waiting = (remote.start_job("check") for _ in range(2))
    with pytest.raises(chronicle.QueryTimeout, match=r"goes on after 0\.01 s"):
        running.wait(0.01)
    with pytest.raises(chronicle.QueryTimeout):
        running.wait(0)
    waiting.cancel()
    with pytest.raises(chronicle.JobFailed, match="cancelled"):
        waiting.wait(PATIENCE_S)
    held.set()
    assert running.wait(PATIENCE_S)["ok"]
    running.cancel()
    assert running.status()["state"] == "done"
    failing = remote.start_job("delete", stream="s", where="nothing = 1")
    with pytest.raises(chronicle.JobFailed, match="nothing"):
        failing.wait(PATIENCE_S)


def test_a_server_that_begins_anew_is_waited_for(
    remote: RemoteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = remote.start_job("check")
    ask, looked = job._transport.json, []

    def away_twice(call: Call) -> Any:
        looked.append(call)
        if len(looked) < 3:
            raise chronicle.ConnectionFailed("away")
        return ask(call)

    monkeypatch.setattr(job._transport, "json", away_twice)
    assert job.wait(PATIENCE_S)["ok"]
    assert len(looked) >= 3


def test_a_server_that_stays_away_is_given_up(
    remote: RemoteDatabase,
    held: threading.Event,  # noqa: F811
    served: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = remote.start_job("check")
    looked: list[int] = []
    clock = SimpleNamespace(
        monotonic=lambda: 0.6 * live.PATIENCE_S * len(looked), sleep=lambda seconds: None
    )
    monkeypatch.setattr(live, "time", clock)

    def away(*_: Any, **__: Any) -> Any:
        looked.append(1)
        raise chronicle.ConnectionFailed("away")

    monkeypatch.setattr(job._transport, "json", away)
    with pytest.raises(chronicle.ConnectionFailed, match="away"):
        job.wait()
    assert len(looked) == 2
    with pytest.raises(chronicle.QueryTimeout):
        job.wait(0)


def test_what_is_asked_wrongly_is_refused(remote: RemoteDatabase) -> None:
    with pytest.raises(chronicle.InvalidArgument, match="BACKUP_DIRECTORY"):
        remote.start_job("backup")
    with pytest.raises(chronicle.InvalidArgument):
        remote.start_job("repair")
    with pytest.raises(chronicle.InvalidArgument):
        remote.start_job("check", wish=1)
    with pytest.raises(chronicle.StreamNotFound):
        remote.start_job("compact", streams=["nothing"])
    with pytest.raises(chronicle.InvalidArgument, match="no job 'x'"):
        remote.job("x")
    with pytest.raises(chronicle.InvalidArgument, match="found an empty text"):
        remote.job("")


def test_tokens_are_managed_by_one_of_them(served: Any, remote: RemoteDatabase) -> None:
    boss = remote.create_token("boss", ["admin"])
    with pytest.raises(chronicle.Unauthorized):
        remote.tokens()
    with chronicle.connect(served.url, boss["secret"]) as db:
        with pytest.raises(chronicle.InvalidArgument, match="scopes are some of"):
            db.create_token("x", ["root"])
        reader = db.create_token("reader", streams=["s"], expires=dt.timedelta(days=2))
        assert (reader["scopes"], reader["streams"]) == (["read"], ["s"])
        with chronicle.connect(served.url, reader["secret"]) as reading:
            assert reading.stream("s").count == 1000
            with pytest.raises(chronicle.Forbidden):
                reading.tokens()
        new = db.rotate_token(reader["token_id"], overlap=dt.timedelta(minutes=5))
        assert new["secret"] != reader["secret"]
        listed = {token["token_id"]: token for token in db.tokens()}
        assert set(listed) == {boss["token_id"], reader["token_id"], new["token_id"]}
        assert not any("secret" in token for token in listed.values())
        assert listed[reader["token_id"]]["last_used_at"] is not None
        with pytest.raises(chronicle.InvalidArgument, match="several tokens"):
            db.revoke_token("reader")
        db.revoke_token(reader["token_id"])
        db.revoke_token("reader")  # one alone has the name now
        with pytest.raises(chronicle.InvalidArgument, match="id or name 'reader'"):
            db.revoke_token("reader")
        with pytest.raises(chronicle.InvalidArgument, match="empty"):
            db.revoke_token("")  # not DELETE /v1/tokens
        until = dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=1)
        other = db.create_token("other", ("ingest",), expires=until)
        assert db.revoke_all_tokens() == [other["token_id"]]
        assert [token["name"] for token in db.tokens()] == ["boss"]


def test_an_empty_name_is_no_address(remote: RemoteDatabase) -> None:
    with pytest.raises(chronicle.InvalidArgument, match="empty"):
        remote.drop_stream("")
    assert remote.streams() == ["s"]


def test_a_token_that_may_have_been_made_is_not_made_twice(serve: Serve) -> None:  # noqa: F811
    server = serve(b"", OK)
    with chronicle.connect(server.url) as db, pytest.raises(chronicle.ConnectionFailed):
        db.create_token("x")
    assert len(server.requests) == 1
