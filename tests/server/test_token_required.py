"""A store that has had tokens stays closed; logs cannot be forged; the disk's errors are ours."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import InvalidArgument, StorageFailed
from chronicle.server import create_token, revoke_token
from chronicle.server.access.settings import Settings
from chronicle.server.access.tokens import is_guarded
from chronicle.server.run import JsonFormatter, TextFormatter, check_binding

from ..new_stores import store_with

SCHEMA = pa.schema([pa.field("t", pa.int64(), False), pa.field("n", pa.int64())])
database = store_with("s", schema=SCHEMA)
SPEC = {"name": "s", "time": "t", "schema": {"t": "bigint"}}


def test_a_restored_store_is_not_more_open_than_its_original(
    database: Any, tmp_path: Path, serve_app: Callable[..., Any]
) -> None:
    check_binding(Settings(store=database.path))
    create_token(database.path, "a", ["read"])
    check_binding(Settings(store=database.path))
    database.backup(tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "server", ignore_errors=True)
    with pytest.raises(InvalidArgument, match=r"has had tokens.*token create"):
        check_binding(Settings(store=tmp_path / "copy"))
    with chronicle.open(tmp_path / "copy") as restored:
        client = serve_app(restored)
        assert client.get("/v1/streams").status_code == 401
        _, secret = create_token(restored.path, "b", ["read"])
        headers = {"authorization": f"Bearer {secret}"}
        assert client.get("/v1/streams", headers=headers).status_code == 200
    check_binding(Settings(store=tmp_path / "copy"))


def test_a_server_whose_last_token_was_revoked_does_not_start_open(database: Any) -> None:
    token, _ = create_token(database.path, "a", ["read"])
    revoke_token(database.path, token.id)
    with pytest.raises(InvalidArgument, match="has had tokens"):
        check_binding(Settings(store=database.path))


def test_a_token_in_a_file_closes_the_store_too(
    database: Any, tmp_path: Path, serve_app: Callable[..., Any]
) -> None:
    (tmp_path / "secret").write_text("0123456789abcdef0123\n")
    assert not is_guarded(database.path)
    serve_app(database, token_file=tmp_path / "secret")
    assert is_guarded(database.path)
    with pytest.raises(InvalidArgument, match="CHRONICLE_TOKEN_FILE"):
        check_binding(Settings(store=database.path))
    check_binding(Settings(store=database.path, token_file=tmp_path / "secret"))


def test_tokens_that_cannot_be_written(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("chronicle.server.access.tokens.replace_file", refuse)
    with pytest.raises(StorageFailed, match="Read-only file system"):
        create_token(database.path, "a", ["read"])
    assert is_guarded(database.path), "rather closed than open"


def test_a_message_and_a_traceback_forge_no_line() -> None:
    forged = "x\n2026-01-01 00:00:00,000 ERROR chronicle: forged\x1b[2J\u202e\ud800"
    try:
        raise ValueError(forged)
    except ValueError:
        import sys

        record = logging.LogRecord(
            "chronicle", logging.ERROR, "", 0, "it failed: %s", (forged,), sys.exc_info()
        )
    text = TextFormatter().format(record)
    first, *rest = text.split("\n")
    assert "it failed: x\\n2026-01-01" in first
    assert rest
    assert all(line.startswith("    ") for line in rest)
    assert text.isascii()
    assert len(text.splitlines()) == len(rest) + 1
    assert JsonFormatter().format(record).isascii()


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [
        (errno.EROFS, 500, "storage-failed"),
        (errno.EACCES, 500, "storage-failed"),
        (errno.EIO, 500, "storage-failed"),
        (errno.ENOENT, 500, "storage-failed"),
        (errno.ENOSPC, 507, "storage-full"),
        (errno.EDQUOT, 507, "storage-full"),
        (errno.EMFILE, 503, "overloaded"),
    ],
)
def test_errors_of_the_system_are_told_as_ours(
    number: int, status: int, code: str, fake: Any, client: Any
) -> None:
    """Without the paths that they name."""
    fake.taught["SELECT 2"] = OSError(number, os.strerror(number), "/var/lib/secret/path")
    for answer in (
        client.post("/v1/query", content=b"SELECT 2"),
        client.get("/v1/query", params={"q": "SELECT 2"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert "secret" not in answer.text


def test_a_disk_that_turned_read_only(
    database: Any, serve_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve_app(database)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/var/lib/secret")

    monkeypatch.setattr(catalog_of(database).store.files, "create", refuse)
    answer = client.post("/v1/streams", json={**SPEC, "name": "new"})
    assert (answer.status_code, answer.json()["code"]) == (500, "storage-failed")
    assert "secret" not in answer.text
    assert client.get("/v1/streams/s/events").status_code == 200


def test_a_commit_that_happened_is_answered_as_one(
    database: Any, serve_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails behind it."""
    client = serve_app(database)
    place = "/v1/streams/s/transactions/job"
    catalog_of(database).create_index("s", "n")
    assert (
        client.put(f"{place}/parts/p?format=json", content=b'[{"t": 1, "n": 2}]').status_code == 200
    )
    monkeypatch.setattr("chronicle.indexes.staged.StreamIndexes.forget", _raise_key)
    monkeypatch.setattr("chronicle.ingest.sinks.abort_staged", _raise_os)
    answer = client.post(f"{place}/commit", json={"parts": ["p"]})
    assert (answer.status_code, answer.json()["appended"]) == (200, 1)
    assert client.post(f"{place}/commit", json={"parts": ["p"]}).json()["replayed"] is True
    assert database.stream("s").count == 1


def _raise_key(*_: object) -> None:
    raise KeyError(7)


def _raise_os(*_: object) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_readiness_is_about_sql_too_and_tells_strangers_nothing(
    fake: Any, serve_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chronicle.server.service.metrics.KEEP_S", 0.0)
    client = serve_app(fake)
    assert client.get("/readyz").json()["streams"] == 2
    _, secret = create_token(fake.path, "a", ["read"])
    assert client.get("/readyz").json() == {"status": "ready"}
    headers = {"authorization": f"Bearer {secret}"}
    assert client.get("/readyz", headers=headers).json()["streams"] == 2
    fake.taught["SELECT 1"] = RuntimeError("FATAL: /var/lib/secret: invalidated")
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
    assert "secret" not in answer.text
    del fake.taught["SELECT 1"]
    assert client.get("/readyz").status_code == 200
