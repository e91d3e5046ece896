"""Every attack that once worked, against a running server."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from chronicle.tests.fuzz.attacks import BODIES, STATEMENTS, Attack
from chronicle.tests.fuzz.bodies import MEDIA
from chronicle.tests.fuzz.target import HIDDEN, HOUR_MS, Reply, Target
from chronicle.tests.fuzz.test_fuzz_bodies import SPEC, read_back
from chronicle.tests.patience import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Target(tmp_path_factory.mktemp("attacks")) as target:
        yield target


def harmless(target: Target, name: str, reply: Reply, refused: bool) -> None:
    """Check that a reply is all that the request did."""
    target.canaries(name)
    faults, target.faults = target.faults, []
    assert not faults, "\n".join(map(str, faults))
    assert reply.status not in (0, 500, 502), reply.text
    if refused:
        assert 400 <= reply.status < 500, reply.text[:300]


@pytest.mark.parametrize("attack", STATEMENTS, ids=lambda attack: attack.name)
def test_a_statement(target: Target, attack: Attack) -> None:
    limit_ms = HOUR_MS if attack.refused else 1000
    reply = target.query(str(attack.make()), timeout_ms=limit_ms)
    harmless(target, attack.name, reply, attack.refused)


@pytest.mark.parametrize("attack", BODIES, ids=lambda attack: attack.name)
def test_a_body(target: Target, attack: Attack) -> None:
    stream = f"w{BODIES.index(attack)}"
    spec = {**SPEC, "name": stream}
    assert target.send("POST", "/v1/streams", "create", target.writer, json=spec).status == 201
    headers = {"Content-Type": MEDIA[attack.format]}
    if attack.encoding:
        headers["Content-Encoding"] = attack.encoding
    body, path = attack.make(), f"/v1/streams/{stream}/events"
    reply = target.send("POST", path, attack.name, target.writer, content=body, headers=headers)
    stored = reply.json()["appended"] if reply.status == 200 else 0
    assert read_back(target, attack.name, stream) == stored
    harmless(target, attack.name, reply, attack.refused)


REQUESTS = {
    "statement by GET": ("GET", "/v1/query?q=SELECT+'a'+COLLATE+'x;select+1'"),
    "condition": ("GET", "/v1/streams/s/events?where=k='a'+COLLATE+'nocase;select+1'"),
    "carriage return in columns": ("GET", "/v1/streams/s/events?columns=a%0Db"),
    "line in a path": ("GET", "/v1/streams/a%0aINFO%20forged/events"),
    "escape in a path": ("GET", "/v1/streams/%1b%5b2J/events"),
    "slash in a name": ("GET", "/v1/streams/a%2Fb"),
    "name outside Latin-1": ("GET", "/v1/streams/%E2%82%AC"),
    "bytes that are no UTF-8": ("GET", "/v1/streams/%FF%FE"),
    "zero byte": ("GET", "/v1/streams/a%00b"),
    "dots": ("GET", "/v1/streams/..%2F..%2Fserver/events"),
    "enormous limit": ("GET", "/v1/streams/s/events?limit=99999999999999999999999"),
    "enormous version": ("GET", "/v1/streams/s/events?version=9223372036854775808"),
    "enormous start": ("GET", "/v1/streams/s/events?start=99999999999999999999"),
    "year 99999": ("GET", "/v1/streams/s/events?start=99999-01-01T00:00:00Z"),
    "many parts": ("GET", "/v1/streams/s/partitions?parts=1000000000"),
    "another's stream": ("GET", f"/v1/streams/{HIDDEN}"),
    "another's events": ("GET", f"/v1/streams/{HIDDEN}/events"),
    "another's commits": ("GET", f"/v1/streams/{HIDDEN}/tail"),
    "another's live query": ("GET", f"/v1/live/{HIDDEN}/rows"),
    "enormous place": ("GET", "/v1/streams/s/tail?follow=false&after=99999999999999999999.1"),
    "condition of a tail": ("GET", "/v1/streams/s/tail?follow=false&where=k='a'+COLLATE+'x;s'"),
    "another's position": ("DELETE", "/v1/streams/s/positions/17-0000000000000000"),
    "drop": ("DELETE", "/v1/streams/s"),
}


def test_requests(target: Target) -> None:
    for name, (method, path) in REQUESTS.items():
        reply = target.send(method, path, f"{name}: {method} {path}")
        assert reply.status not in (0, 500, 502), (name, reply.text)
    harmless(target, "requests", reply, refused=False)


QUERIES = [
    '{"sql": "SELECT 1", "timeout_ms": 1e300}',
    '{"sql": "SELECT 1", "timeout_ms": 9223372036854775808}',
    '{"sql": "SELECT 1", "limit": -1}',
    '{"sql": "SELECT \\ud800"}',
    '{"sql": "SELECT $a", "params": {"a": "\\ud800"}}',
    '{"sql": "SELECT $a", "params": {"a": 1e400}}',
    '{"sql": "SELECT ?", "params": [99999999999999999999999999999999999999999999]}',
    '{"sql": "SELECT 1", "sql": 2}',
    "[" * 100_000,
    '{"sql": ' + "[" * 100_000,
    '{"a": 1, ' * 10_000,
    '"SELECT 1"',
    "null",
    "",
]


def test_queries_in_json(target: Target) -> None:
    headers = {"Content-Type": "application/json"}
    for body in QUERIES:
        reply = target.send("POST", "/v1/query", body[:200], content=body, headers=headers)
        assert reply.status not in (0, 500, 502), (body[:60], reply.text)
    harmless(target, "queries in JSON", reply, refused=False)


def test_a_name_out_of_reach_is_told_by_no_answer(target: Target) -> None:
    """The answers for a stream of others and for one that is not there are the same."""
    for path in ("/v1/streams/{}", "/v1/streams/{}/events", "/v1/streams/{}/partitions"):
        there, nowhere = (
            target.send("GET", path.format(name), name) for name in (HIDDEN, "no_such_stream")
        )
        assert there.status == nowhere.status
        there_text = there.text.replace(HIDDEN, "no_such_stream")
        assert strip_ids(there_text) == strip_ids(nowhere.text)
    answers = [target.query(f"SELECT * FROM {name}") for name in (HIDDEN, "no_such_stream_at_all")]
    assert answers[0].status == answers[1].status
    harmless(target, "names", answers[0], refused=True)


def strip_ids(text: str) -> str:
    """A problem document without what differs between two equal requests."""
    return text.partition('"request_id"')[0]


HEADERS = {
    "two tokens": ["Authorization: Bearer {reader}", "Authorization: Bearer {writer}"],
    "two hosts": ["Host: localhost", "Host: example.org", "Authorization: Bearer {reader}"],
    "two lengths": ["Authorization: Bearer {reader}", "Content-Length: 5", "Content-Length: 6"],
    "chunks and a length": [
        "Authorization: Bearer {reader}",
        "Transfer-Encoding: chunked",
        "Content-Length: 5",
    ],
    "escape in a request id": ["Authorization: Bearer {reader}", "X-Request-Id: a\x1b[2Jb"],
    "a long header": ["Authorization: Bearer {reader}", f"X-Long: {'a' * 100_000}"],
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers(target: Target, name: str) -> None:
    headers = HEADERS[name]
    lines = ["GET /v1/streams HTTP/1.1", *headers]
    if not any(line.startswith("Host") for line in headers):
        lines.insert(1, "Host: localhost")
    text = "\r\n".join(lines).format(reader=target.reader, writer=target.writer)
    host, _, port = target.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(f"{text}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    status = int(answer.split(b" ", 2)[1]) if answer else 400
    harmless(target, name, Reply(status, answer), refused=False)
    if name.startswith("two "):
        assert 400 <= status < 500


def test_log_lines_cannot_be_forged(target: Target) -> None:
    target.send("GET", "/v1/streams/x%0d%0aINFO%20forged%20line/events", "line")
    target.send("GET", "/v1/streams/x%1b%5b2Jcleared/events", "escape")
    wait_until(lambda: any("cleared" in line for line in target.log), "the request in the log")
    assert not [line for line in target.log if line.lstrip().startswith("INFO forged")]
    assert not [line for line in target.log if "\x1b" in line]


def test_readiness_tells_a_stranger_nothing_else(target: Target) -> None:
    answer = target.http.get("/readyz")
    assert answer.status_code == 200
    assert not re.search(r"stream|byte|free|disk|version|\d{3}", answer.text), answer.text


def test_a_position_of_another_is_not_dropped(target: Target) -> None:
    """A second reader of a stream knows no name of a position; guessing must not be enough."""
    made = target.send("POST", "/v1/streams/s/positions", "position", json={}).json()["position"]
    version = made.partition("-")[0]
    target.send("DELETE", f"/v1/streams/s/positions/{version}-0000000000000000", "guess")
    after = target.send("GET", f"/v1/streams/s/changes?until={made}", "changes")
    assert after.status == 200, after.text
