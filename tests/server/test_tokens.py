"""Tokens at rest, and what a running server makes of them."""

from __future__ import annotations

import datetime as dt
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

import chronicle.server as server
from chronicle.errors import CorruptStore, InvalidArgument, Unauthorized
from chronicle.server.access.tokens import TokenFile
from chronicle.store.files import RealFiles
from chronicle.store.manifest import write_manifest


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    (path / "CHRONICLE").mkdir(parents=True)
    write_manifest(RealFiles(str(path)), "CHRONICLE", {"store": 1, "identity": "0"})
    return path


def test_the_secret_is_shown_once_and_not_kept(store: Path) -> None:
    token, secret = server.create_token(store, "grafana", ["read"], ["nab_*"])
    assert secret.startswith("chr_")
    assert len(secret) >= 40
    written = (store / "server" / "tokens.json").read_text()
    assert secret not in written
    assert secret[4:] not in written
    assert token.sha256 in written
    assert server.list_tokens(store) == [token]


def test_only_the_owner_may_read_the_file(store: Path) -> None:
    server.create_token(store, "a")
    before = os.stat(store / "server" / "tokens.json").st_ino
    server.create_token(store, "b")
    after = os.stat(store / "server" / "tokens.json")
    assert stat.S_IMODE(after.st_mode) == 0o600
    assert stat.S_IMODE(os.stat(store / "server").st_mode) == 0o700
    assert after.st_ino != before  # replaced, not rewritten in place
    assert sorted(os.listdir(store / "server")) == ["tokens.json", "tokens.lock"]


def test_a_store_is_made_when_there_is_none(tmp_path: Path) -> None:
    import chronicle.database

    token, _ = server.create_token(tmp_path / "new", "first", ["admin"])
    with chronicle.database.open_database(tmp_path / "new") as database:
        assert database.streams() == []
    assert [found.id for found in server.list_tokens(tmp_path / "new")] == [token.id]


def test_tokens_are_found_by_their_secret(store: Path) -> None:
    token, secret = server.create_token(store, "a", ["read"])
    file = TokenFile(store)
    assert file.find(secret) == token
    for wrong in (secret[:-1], secret + "x", "", "chr_", token.sha256, token.id):
        with pytest.raises(Unauthorized):
            file.find(wrong)


def test_a_running_server_sees_changes(store: Path) -> None:
    file = TokenFile(store)
    assert not file.any()
    token, secret = server.create_token(store, "a")
    assert file.find(secret) == token
    assert server.revoke_token(store, token.id) == token
    with pytest.raises(Unauthorized):
        file.find(secret)
    assert server.list_tokens(store) == []


def test_tokens_expire(store: Path) -> None:
    token, secret = server.create_token(store, "a", expires="2 hours")
    assert TokenFile(store).find(secret) == token
    now = dt.datetime.now(dt.timezone.utc)
    assert not token.expired(now + dt.timedelta(hours=1, minutes=59))
    assert token.expired(now + dt.timedelta(hours=2, seconds=1))


def test_an_expired_token_is_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, secret = server.create_token(store, "a", expires="1s")
    later = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=2)
    monkeypatch.setattr("chronicle.server.access.tokens._now", lambda: later)
    with pytest.raises(Unauthorized, match="expired at"):
        TokenFile(store).find(secret)


@pytest.mark.parametrize(
    "wrong",
    [
        {"scopes": ["reed"]},
        {"scopes": []},
        {"streams": []},
        {"streams": [""]},
        {"name": ""},
        {"name": "a\nb"},
        {"expires": "yesterday"},
        {"expires": "2001-01-01"},
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(store: Path, wrong: Any) -> None:
    with pytest.raises(InvalidArgument):
        server.create_token(store, **{"name": "a", **wrong})
    assert server.list_tokens(store) == []


@pytest.mark.parametrize("given", ["30d", "12 hours", "2w", "2099-01-01", "2099-01-01T00:00+02:00"])
def test_ways_to_say_when_a_token_expires(store: Path, given: str) -> None:
    token, _ = server.create_token(store, "a", expires=given)
    assert token.expires_at is not None
    assert token.expires_at.endswith("Z")
    assert not token.expired()


def test_revoking_by_name_needs_it_to_be_clear(store: Path) -> None:
    server.create_token(store, "a")
    twin, _ = server.create_token(store, "a")
    with pytest.raises(InvalidArgument, match="several"):
        server.revoke_token(store, "a")
    with pytest.raises(InvalidArgument, match="no token"):
        server.revoke_token(store, "b")
    server.revoke_token(store, twin.id)
    server.revoke_token(store, "a")
    assert server.list_tokens(store) == []


def test_makers_take_turns(store: Path) -> None:
    threads = [
        threading.Thread(target=server.create_token, args=(store, f"t{number}"))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {token.name for token in server.list_tokens(store)} == {f"t{n}" for n in range(8)}


def test_a_damaged_file_lets_nobody_in(store: Path) -> None:
    _, secret = server.create_token(store, "a")
    (store / "server" / "tokens.json").write_text('{"version": 1, "tokens": [{"id":')
    with pytest.raises(CorruptStore, match=r"tokens\.json"):
        TokenFile(store).find(secret)


def test_a_secret_from_a_file_has_every_right(store: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123\n")
    token = TokenFile(store, secret).find("0123456789abcdef0123")
    assert token.allows("admin")
    assert token.allows("read")
    assert token.reaches_all
    secret.write_text("short\n")
    with pytest.raises(InvalidArgument, match="16 characters"):
        TokenFile(store, secret)
    with pytest.raises(InvalidArgument, match="cannot be read"):
        TokenFile(store, tmp_path / "none")


def test_scopes_and_globs(store: Path) -> None:
    reader, _ = server.create_token(store, "r", ["read"], ["nab_*", "flights"])
    assert reader.allows("read")
    assert not reader.allows("write")
    assert not reader.allows("admin")
    assert reader.reaches("nab_twitter")
    assert reader.reaches("flights")
    assert not reader.reaches("Flights")
    assert not reader.reaches("xnab_")
    writer, _ = server.create_token(store, "w", ["write"])
    assert not writer.allows("read")
    admin, _ = server.create_token(store, "a", ["admin"])
    assert admin.allows("read")
    assert admin.allows("write")
