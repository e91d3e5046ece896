"""Positions and changes over HTTP: what is new, each event once, whatever happened in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import chronicle
from chronicle.server import create_token

EVENTS = "/v1/streams/s/events"
POSITIONS = "/v1/streams/s/positions"
CHANGES = "/v1/streams/s/changes"
SPEC = {"name": "s", "time": "t", "schema": {"t": "bigint", "n": "bigint"}}


class Feed:
    """Appends numbered events through a client, and follows them."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.n = 0
        assert client.post("/v1/streams", json=SPEC).status_code == 201

    def append(self, times: list[int]) -> list[tuple[int, int]]:
        rows = [(t, self.n + i) for i, t in enumerate(times)]
        self.n += len(rows)
        body = [{"t": t, "n": n} for t, n in rows]
        assert self.client.post(EVENTS, json=body).status_code == 200
        return rows

    def keep(self, **body: Any) -> Any:
        return self.client.post(POSITIONS, json=body).json()["position"]

    def news(self, **query: Any) -> list[tuple[int, int]]:
        response = self.client.get(f"{CHANGES}/events", params=query)
        assert response.status_code == 200, response.text
        return [(row["t"], row["n"]) for row in response.json()]


@pytest.fixture
def feed(database: Any, serve_app: Callable[..., Any]) -> Feed:
    return Feed(serve_app(database))


def test_what_lies_between_positions_is_what_was_appended_between_them(
    feed: Feed, database: Any
) -> None:
    rng = random.Random(5)
    position = None
    for step in range(6):
        added: list[tuple[int, int]] = []
        for _ in range(rng.randint(1, 3)):
            first = rng.randint(0, 40 * (step + 1))
            added += feed.append([first + rng.randint(0, 60) for _ in range(rng.randint(1, 90))])
            if rng.random() < 0.4:
                getattr(database.stream("s"), rng.choice(["seal", "compact", "flush"]))()
        following = feed.keep(after=position) if position else feed.keep()
        query = {"until": following} | ({"after": position} if position else {})
        expected = sorted(added, key=lambda row: row[0])
        assert feed.news(**query) == expected
        plan = feed.client.get(CHANGES, params=query).json()
        assert plan["events"] == len(added)
        pieces = [
            row
            for part in plan["ranges"]
            for row in feed.news(**query, start=part["start"] or "", end=part["end"] or "")
        ]
        assert pieces == expected
        assert feed.news(**query, skip=3, limit=5) == expected[3:8]
        if position:
            assert feed.client.delete(f"{POSITIONS}/{position}").status_code == 204
        position = following
    assert feed.keep(after=position) is None


def test_positions_are_kept_over_a_restart_and_against_compaction(
    tmp_path: Path, serve_app: Callable[..., Any]
) -> None:
    with chronicle.open(tmp_path / "kept") as database:
        feed = Feed(serve_app(database))
        feed.append([1, 2, 3])
        first = feed.keep()
        more = feed.append([2, 9])
    with chronicle.open(tmp_path / "kept") as database:
        again = feed.client = serve_app(database)
        database.stream("s").seal()
        database.stream("s").compact()
        second = feed.keep(after=first)
        assert feed.news(after=first, until=second) == more
        early = again.post(POSITIONS, json={"at": 10**6})
        assert (early.status_code, early.json()["code"]) == (410, "snapshot-expired")


def test_positions_that_cannot_be(feed: Feed) -> None:
    feed.append([1])
    old, new = feed.keep(), None
    feed.append([2])
    new = feed.keep(after=old)
    unknown = "1-0123456789abcdef"
    for query, status, code in (
        ({}, 422, "invalid-request"),
        ({"until": "../../MANIFEST"}, 400, "invalid-argument"),
        ({"until": unknown}, 410, "snapshot-expired"),
        ({"until": old, "after": new}, 400, "invalid-argument"),
        ({"until": new, "columns": "speed"}, 404, "attribute-not-found"),
    ):
        response = feed.client.get(f"{CHANGES}/events", params=query)
        assert (response.status_code, response.json()["code"]) == (status, code), response.text
    assert feed.client.post(POSITIONS, json={"at": 1, "after": old}).status_code == 400
    assert feed.client.post(POSITIONS, json={"after": unknown}).status_code == 410
    assert feed.client.delete(f"{POSITIONS}/..%2F..%2FMANIFEST").status_code in (400, 404)
    assert feed.client.delete(f"{POSITIONS}/{unknown}").status_code == 204


def test_positions_have_a_bound_and_an_end(
    database: Any, serve_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(serve_app(database, max_positions=2, position_ttl_hours=1))
    server = feed.client.app.state.server
    first, _ = feed.keep(), feed.keep()
    refused = feed.client.post(POSITIONS, json={})
    assert (refused.status_code, refused.json()["code"]) == (413, "resource-limit")
    monkeypatch.setattr(server.positions, "clock", lambda: 4e9)  # a day that is far away
    server.tidy()
    gone = feed.client.get(f"{CHANGES}/events", params={"until": first})
    assert (gone.status_code, gone.json()["code"]) == (410, "snapshot-expired")
    assert feed.client.post(POSITIONS, json={}).status_code == 201


def test_a_store_that_is_read_only_keeps_no_positions(
    tmp_path: Path, serve_app: Callable[..., Any]
) -> None:
    with chronicle.open(tmp_path / "store") as database:
        Feed(serve_app(database))
    with chronicle.open(tmp_path / "store", mode="r") as database:
        refused = serve_app(database).post(POSITIONS, json={})
    assert (refused.status_code, refused.json()["code"]) == (403, "read-only-store")


def test_positions_belong_to_their_token(database: Any, serve_app: Callable[..., Any]) -> None:
    """To another token they are not kept; a new token of the same name goes on with them."""
    client = serve_app(database)
    feed = Feed(client)
    feed.append([1, 2])
    open_position = feed.keep()
    secrets = {
        name: create_token(database.path, name, ["read"])[1] for name in ("mine", "theirs", "mine ")
    }
    again = create_token(database.path, "mine", ["read"])[1]

    def ask(method: str, path: str, secret: str, **more: Any) -> Any:
        return client.request(method, path, headers={"authorization": f"Bearer {secret}"}, **more)

    position = ask("POST", POSITIONS, secrets["mine"], json={}).json()["position"]
    for name in ("theirs", "mine "):
        other = secrets[name]
        for answer in (
            ask("POST", POSITIONS, other, json={"after": position}),
            ask("GET", CHANGES, other, params={"until": position}),
            ask("GET", f"{CHANGES}/events", other, params={"until": position}),
            ask("GET", CHANGES, other, params={"after": position, "until": open_position}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (410, "snapshot-expired")
        gone = ask("GET", CHANGES, other, params={"until": position[:-24] + "0" * 24})
        told = ask("GET", CHANGES, other, params={"until": position}).json()["detail"]
        assert gone.json()["detail"].replace("0" * 24, position[-24:]) == told, "no oracle"
        assert ask("DELETE", f"{POSITIONS}/{position}", other).status_code == 204
    for secret in (secrets["mine"], again):
        assert ask("GET", CHANGES, secret, params={"until": position}).json()["events"] == 2
        # made when the server had no tokens, it is nobody's
        assert ask("GET", CHANGES, secret, params={"until": open_position}).status_code == 200
    assert ask("DELETE", f"{POSITIONS}/{position}", again).status_code == 204
    assert ask("GET", CHANGES, secrets["mine"], params={"until": position}).status_code == 410


def test_one_token_leaves_positions_to_others(database: Any, serve_app: Callable[..., Any]) -> None:
    client = serve_app(database, max_positions=8)
    Feed(client).append([1])
    greedy = create_token(database.path, "greedy", ["read"])[1]
    modest = create_token(database.path, "modest", ["read"])[1]
    codes = [
        client.post(POSITIONS, json={}, headers={"authorization": f"Bearer {greedy}"}).status_code
        for _ in range(8)
    ]
    assert codes == [201] * 6 + [413] * 2
    answer = client.post(POSITIONS, json={}, headers={"authorization": f"Bearer {modest}"})
    assert answer.status_code == 201
