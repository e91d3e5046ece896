"""No request is answered with 500, whatever stands in its parameters, bodies and addresses."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

import chronicle

from ..rounds import rounds

SCHEMA = pa.schema(
    [
        pa.field("t", pa.timestamp("us"), False),
        pa.field("n", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("s", pa.string()),
    ]
)
TEXTS = [
    "", " ", "\0", "a\rb", "a\nb", "\x1b[31m", "\u2028", "\ufeff", "\U0001f600", "a/b", "..", "%",
    "'", '"', '"a', "a,,b", "[" * 50, "é", "x" * 5000, "*", "nan", "-1", "0", "1", "1e400", "١٢",
    "²", "true", "null", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "9" * 400, "9" * 5000, "99999-01-01T00:00:00Z", "0000-00-00", "1e308", "17-03ab5c7d9e1f2a4b",
    "9223372036854775807-03ab5c7d9e1f2a4b", "json", "parquet",
]  # fmt: skip
"""Values that parsers, headers, files and integers of 64 bits stumble over."""

BODIES: list[Any] = [
    None, True, 0, -1, 1e308, 10**18, 10**30, "", "a\0b", "\U0001f600", [], {}, [[]], [None] * 3,
    {"a": None}, {"": ""}, [{"": 1}],
]  # fmt: skip


@pytest.fixture
def client(tmp_path: Path, serve_app: Callable[..., Any]) -> Iterator[Any]:
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        stream.append([{"t": "2018-08-01T05:00:00", "n": 1, "x": 0.5, "s": "a"}])
        yield serve_app(database)


def fine(response: Any) -> bool:
    """Whether an answer is one that a request can cause."""
    if response.status_code < 500:
        return True
    # no part of the request, but of the store, is what these tell of
    return response.status_code in (503, 504) and response.json()["code"] != "internal-error"


def operations(client: Any) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Method, path, names of its parameters in the address and of its other parameters."""
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            given = operation.get("parameters", [])
            yield (
                method.upper(),
                path,
                [p["name"] for p in given if p["in"] == "path"],
                [p["name"] for p in given if p["in"] == "query"],
            )


GOOD = {
    "stream": "s",
    "name": "alarm",
    "attribute": "n",
    "position": "1-03ab5c7d9e1f2a4b",
    "until": "1-03ab5c7d9e1f2a4b",
    "transaction": "job",
    "part": "p",
    "job_id": "j",
    "token_id": "i",
    "query_id": "q",
    "q": "SELECT 1",
    "follow": "false",
}


NEEDED = ("q", "until", "attribute", "follow", "stream")


def address(path: str, names: list[str], **odd: str) -> str:
    for name in names:
        path = path.replace("{" + name + "}", quote(odd.get(name, GOOD[name]), safe=""))
    return path


def test_parameters(client: Any) -> None:
    asked, share = 0, rounds(9, 1)  # each parameter gets a ninth of the texts, or all
    for number, (method, path, inside, beside) in enumerate(operations(client)):
        for name, text in itertools.product([*inside, *beside], TEXTS[number % share :: share]):
            if method == "DELETE" and path == "/v1/streams/{stream}" and text == "s":
                continue
            if name == "follow" and text in ("true", "1"):  # an answer that does not end
                continue
            needed = {n: GOOD[n] for n in beside if n in NEEDED}
            if name in inside:
                url = address(path, inside, **{name: text})
                response = client.request(method, url, params=needed, content=b"[]")
            else:
                if method == "DELETE":
                    continue
                url = address(path, inside)
                response = client.request(method, url, params={**needed, name: text}, content=b"[]")
            asked += 1
            assert fine(response), (method, url, name, text, response.text[:500])
    assert asked > 1000 // share


def test_bodies(client: Any) -> None:
    specs = {
        ("POST", "/v1/query"): {"sql": "SELECT $1", "params": [1], "limit": 1, "timeout_ms": 1000},
        ("POST", "/v1/explain"): {"sql": "SELECT 1", "analyze": True, "params": None},
        ("POST", "/v1/streams"): {
            "name": "new", "time": "t", "schema": {"t": "bigint"}, "retention": "1 day",
            "codec": "lz4", "arrow_schema": None, "if_not_exists": True,
        },
        ("POST", "/v1/streams/s/positions"): {"at": None, "after": None},
        ("POST", "/v1/streams/s/transactions/job/commit"): {
            "parts": [], "truncate": False, "app_id": "a", "app_version": 1,
            "replace": {"start": 1, "end": 2, "precision": None},
        },
    }  # fmt: skip
    share = rounds(5, 1)  # each member gets a fifth of the values, or all
    for (method, path), spec in specs.items():
        for name, value in [*itertools.product(spec, [*BODIES, *TEXTS])][::share]:
            body = json.dumps({**spec, name: value})
            response = client.request(method, path, content=body)
            assert fine(response), (path, body[:200], response.text[:500])
        for value in (*BODIES, *TEXTS):
            response = client.request(method, path, content=json.dumps(value))
            assert fine(response), (path, value, response.text[:500])
        for raw in RAW:
            for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
                response = client.request(method, path, content=raw, headers={"content-type": kind})
                assert fine(response), (path, raw[:80], response.text[:500])


RAW = [
    b"",
    b"\xff\xfe",
    b'{"sql": "SELECT \\ud800"}',
    b'{"sql": "\xed\xa0\x80"}',
    b'{"sql": 1e999}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'"' + b"\\" * 99_999,
    b"sql=%ED%A0%80",
    b"sql=%00",
    b"&".join([b"a=b"] * 50_000),
    b"sql=" + b"&".join([b"a=b"] * 50_000),
    b"SELECT '\x00'",
    b"9" * 10_000,
]


@pytest.mark.parametrize(
    "name", ["a/b", "日本", "a\nb", "\u2028", "..", "é", "a%2Fb", "x y", '"', "a?b#c", "-"]
)
def test_streams_of_any_name_can_be_reached(name: str, client: Any) -> None:
    """Created, told where it is, filled, read and dropped; or refused before it is created."""
    spec = {"name": name, "time": "t", "schema": {"t": "bigint"}}
    created = client.post("/v1/streams", json=spec)
    assert created.status_code == 201, created.text
    where = created.headers["location"]
    assert where == "/v1/streams/" + quote(name, safe="")
    if name == "..":
        return  # clients take that away from addresses
    assert client.get(where).json()["name"] == name
    assert client.post(where + "/events", json=[{"t": 1}]).json()["appended"] == 1
    assert client.get(where + "/events").json() == [{"t": 1}]
    assert client.delete(where).status_code == 204
    assert client.get(where).status_code == 404


@pytest.mark.parametrize("name", ["", "\0", "x" * 300, "\ud800"])
def test_names_that_no_stream_can_have(name: str, client: Any) -> None:
    before = client.get("/v1/streams").json()
    body = json.dumps({"name": name, "time": "t", "schema": {"t": "bigint"}})
    response = client.post("/v1/streams", content=body)
    assert response.status_code in (400, 422), response.text
    assert client.get("/v1/streams").json() == before


def test_enormous_numbers(client: Any) -> None:
    for number in ("1" + "0" * 400, "1e400", "9" * 5000, "-1", "1.5", "NaN"):
        response = client.post(
            "/v1/query", content=f'{{"sql": "SELECT 1", "timeout_ms": {number}}}'
        )
        assert response.status_code in (200, 400, 422), response.text
        response = client.get("/v1/query", params={"q": "SELECT 1", "timeout_ms": number})
        assert response.status_code in (200, 400, 422), response.text


def test_answers_that_json_has_no_words_for(client: Any) -> None:
    for sql in (
        "SELECT chr(55296) AS a",
        "SELECT 'a' || chr(0) AS \"b\nc\"",
        'SELECT 1 AS "\U0001f600"',
        "SELECT nosuch('\x1b')",
        'SELECT * FROM "\x1b\ud83d"'.encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
        " AND ".join(["SELECT 1 WHERE 1 = 1", *["1 = 1"] * 700]),
        "CREATE STREAM z (t BIGINT, a INT" + "[]" * 100 + ") TIMESTAMP BY t",
        "SELECT " + "(" * 200 + "1" + ")" * 200,
    ):
        response = client.post("/v1/query", json={"sql": sql})
        assert fine(response), (sql[:80], response.text[:300])


def test_headers(client: Any) -> None:
    for name, value in itertools.product(
        (
            b"accept", b"accept-encoding", b"authorization", b"content-type", b"content-encoding",
            b"content-length", b"idempotency-key", b"x-request-id", b"origin", b"referer",
        ),
        (b"", b"\xff\xfe", b"\xb2", b"a;q=nan", b"*;q=1e999", b"a" * 4000, b"Bearer \xff",
         b"gzip;q=x", b",,,", b";;;=", b"text/html; charset=\x80"),
    ):  # fmt: skip
        for path in ("/v1/query?q=SELECT 1", "/v1/streams/s/events"):
            response = client.request("GET", path, headers=[(name, value)])
            assert fine(response), (name, value, response.text[:300])
        response = client.post(
            "/v1/streams/s/events?format=json", content=b"[]", headers=[(name, value)]
        )
        assert fine(response), (name, value, response.text[:300])


@pytest.mark.parametrize(
    "body",
    [
        b'{"sql": "' + b'\\"' * 400_000,
        b'"' * 900_000,
        b"[" * 900_000,
        b"[]," * 300_000,
        b'{"sql": "SELECT 1", "params": ' + b"[" * 33 + b"]" * 33 + b"}",
    ],
)
def test_bodies_that_are_no_json_cost_little(body: bytes, client: Any) -> None:
    """A search that goes back would take longer than a test may."""
    answer = client.post("/v1/query", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422), answer.text


def test_depth_counts_outside_of_strings_only(client: Any) -> None:
    text = "SELECT '" + "[{" * 50 + "' AS a, $1 AS b"
    answer = client.post("/v1/query", json={"sql": text, "params": [1]})
    assert answer.status_code == 200, answer.text


def test_json_bodies_have_a_size(client: Any) -> None:
    answer = client.post("/v1/query", content=b"SELECT 1" + b" " * (1 << 20))
    assert (answer.status_code, answer.json()["code"]) == (413, "body-too-large")
