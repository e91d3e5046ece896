"""Tokens at rest, and what a running server makes of them."""

from __future__ import annotations

import datetime as dt
import os
import stat
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

import chronicle
import chronicle.server as server
from chronicle.errors import CorruptStore, InvalidArgument, Unauthorized
from chronicle.server.access.tokens import TokenFile, last_uses
from chronicle.store.catalog import write_manifest
from chronicle.store.files import RealFiles


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
    assert sorted(os.listdir(store / "server")) == [
        "audit.log",
        "tokens.json",
        "tokens.lock",
    ]


def test_a_store_is_made_when_there_is_none(tmp_path: Path) -> None:
    token, _ = server.create_token(tmp_path / "new", "first", ["admin"])
    with chronicle.open(tmp_path / "new") as database:
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


def test_an_expired_token_is_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, secret = server.create_token(store, "a", expires="1s")
    later = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=2)
    monkeypatch.setattr("chronicle.server.access.tokens.now_utc", lambda: later)
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
        {"expires": "99999999999999999999d"},
        {"expires": "9999-12-31T23:59:59-14:00"},
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


def test_globs(store: Path) -> None:
    reader, _ = server.create_token(store, "r", ["read"], ["nab_*", "flights"])
    assert reader.reaches("nab_twitter")
    assert reader.reaches("flights")
    for name in ("Flights", "flights2", "xnab_"):
        assert not reader.reaches(name)


# ------------------------------------------------------------------------------------ rotation


def test_a_token_is_replaced_by_another_of_its_kind(store: Path) -> None:
    old, old_secret = server.create_token(store, "a", ["read", "ingest"], ["x*"], "10d")
    file = TokenFile(store)
    new, secret = server.rotate_token(store, "a", "2h")
    assert (new.name, new.scopes, new.streams) == (old.name, old.scopes, old.streams)
    assert new.id != old.id
    assert file.find(secret) == new
    assert file.find(old_secret).id == old.id, "for two hours more"
    now = dt.datetime.now(dt.timezone.utc)
    assert file.find(old_secret).expired(now + dt.timedelta(hours=2, seconds=2))
    assert not new.expired(now + dt.timedelta(days=9))
    assert new.expired(now + dt.timedelta(days=10, seconds=2))
    _, third = server.rotate_token(store, new.id, "0s", "30d")
    with pytest.raises(Unauthorized):
        file.find(secret)
    assert file.find(third).name == "a"


def test_a_replaced_token_lives_no_longer_than_it_would_have(store: Path) -> None:
    old, _ = server.create_token(store, "a", expires="1h")
    server.rotate_token(store, old.id, "7d")
    kept = {token.id: token.expires_at for token in server.list_tokens(store)}
    assert kept[old.id] == old.expires_at
    for overlap in ("soon", "", "-1h"):
        with pytest.raises(InvalidArgument, match="overlap"):
            server.rotate_token(store, old.id, overlap)
    with pytest.raises(InvalidArgument, match="no token"):
        server.rotate_token(store, "b")
    assert len(server.list_tokens(store)) == 2
    with pytest.raises(InvalidArgument, match="year 10000"):
        server.create_token(store, "a", expires="999999w")


def test_all_tokens_go_at_once_and_the_store_stays_closed(store: Path) -> None:
    kept, secret = server.create_token(store, "a")
    others = [server.create_token(store, f"b{n}")[0].id for n in range(3)]
    assert [token.id for token in server.revoke_all_tokens(store, keep=kept.id)] == others
    file = TokenFile(store)
    assert file.find(secret) == kept
    assert [token.id for token in server.revoke_all_tokens(store)] == [kept.id]
    assert not file.any()
    assert file.guarded()


# --------------------------------------------------------------------------------- over REST


def bearer(secret: str) -> dict[str, dict[str, str]]:
    return {"headers": {"authorization": f"Bearer {secret}"}}


def test_tokens_are_managed_while_the_server_runs(database: Any, serve_app: Any) -> None:
    api = serve_app(database)
    refused = api.post("/v1/tokens", json={"name": "a", "scopes": ["read"]})
    assert (refused.status_code, "first token" in refused.json()["detail"]) == (400, True)
    made = api.post("/v1/tokens", json={"name": "boss", "scopes": ["admin"]})
    assert made.status_code == 201
    boss = made.json()
    assert api.get("/v1/tokens").status_code == 401, "closed from then on"
    me = bearer(boss["secret"])
    sensor = api.post(
        "/v1/tokens",
        json={"name": "s", "scopes": ["ingest"], "streams": ["s*"], "expires": "30d"},
        **me,
    ).json()
    assert api.get("/v1/session", **bearer(sensor["secret"])).json()["scopes"] == ["ingest"]
    assert api.get("/v1/tokens", **bearer(sensor["secret"])).status_code == 403
    new = api.post(f"/v1/tokens/{sensor['token_id']}/rotate", json={"overlap": "1h"}, **me)
    assert (new.status_code, new.json()["streams"]) == (201, ["s*"])
    for each in (sensor, new.json()):
        assert api.get("/v1/session", **bearer(each["secret"])).json()["name"] == "s"
    listed = {token["token_id"]: token for token in api.get("/v1/tokens", **me).json()["tokens"]}
    assert len(listed) == 3
    assert all(token["last_used_at"] is not None for token in listed.values())
    assert not any("secret" in token or "sha256" in token for token in listed.values())
    assert api.delete(f"/v1/tokens/{sensor['token_id']}", **me).status_code == 204
    assert api.delete(f"/v1/tokens/{sensor['token_id']}", **me).status_code == 404
    assert api.get("/v1/session", **bearer(sensor["secret"])).status_code == 401
    assert api.delete("/v1/tokens", **me).json() == {"revoked": [new.json()["token_id"]]}
    assert api.get("/v1/session", **bearer(new.json()["secret"])).status_code == 401
    written = (Path(database.path) / "server" / "audit.log").read_text()
    assert {"made a token", "rotated a token", "revoked a token"} <= {
        line["did"] for line in map(orjson.loads, written.splitlines()) if "did" in line
    }
    assert "chr_" not in written


def test_what_cannot_be_a_token_is_refused(database: Any, serve_app: Any) -> None:
    _, secret = server.create_token(database.path, "boss", ["admin"])
    api = serve_app(database)
    for body, status in (
        ({}, 422),
        ({"name": "a", "scopes": "read"}, 422),
        ({"name": "a", "wish": 1}, 422),
        ({"name": "a", "scopes": ["root"]}, 400),
    ):
        assert api.post("/v1/tokens", json=body, **bearer(secret)).status_code == status, body
    assert len(api.get("/v1/tokens", **bearer(secret)).json()["tokens"]) == 1


def test_tokens_made_over_rest_expire_in_time(database: Any, serve_app: Any) -> None:
    _, secret = server.create_token(database.path, "boss", ["admin"])
    api, me = serve_app(database, token_days=30), bearer(secret)
    assert api.post("/v1/tokens", json={"name": "a", "expires": "31d"}, **me).status_code == 400
    made = api.post("/v1/tokens", json={"name": "a"}, **me).json()
    month = dt.datetime.fromisoformat(made["expires_at"]) - dt.datetime.now(dt.timezone.utc)
    assert dt.timedelta(days=29, hours=23) < month <= dt.timedelta(days=30)
    short = api.post("/v1/tokens", json={"name": "b", "expires": "1d"}, **me).json()
    turned = api.post(f"/v1/tokens/{short['token_id']}/rotate", json={}, **me).json()
    assert turned["expires_at"] <= made["expires_at"]


def test_when_a_token_was_used_outlives_the_server(database: Any, serve_app: Any) -> None:
    token, secret = server.create_token(database.path, "a", ["read"])
    idle, _ = server.create_token(database.path, "b", ["read"])
    api = serve_app(database)
    api.get("/v1/session", **bearer(secret))
    assert last_uses(database.path) == {}
    api.app.state.server.tidy()
    found = last_uses(database.path)
    assert set(found) == {token.id}
    assert found[token.id].startswith(f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}")
    again = serve_app(database)
    assert again.app.state.server.tokens.uses() == found
    server.revoke_token(database.path, token.id)
    again.app.state.server.tokens.find(server.rotate_token(database.path, idle.id)[1])
    again.app.state.server.tidy()
    assert token.id not in last_uses(database.path)
    (Path(database.path) / "server" / "token-uses.json").write_text("[")
    assert last_uses(database.path) == {}
