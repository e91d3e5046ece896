"""Results as files: sizes, ranges and tags, as programs that read files over HTTP ask for them."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from chronicle.errors import ResourceLimit
from chronicle.server import create_token
from chronicle.server.http.replies import Problem
from chronicle.server.http.requests import FileRequest, Judgement
from chronicle.server.service.answer_cache import AnswerCache

from .flights import SPEC, as_ndjson, rows_of

EVENTS = "/v1/streams/flights/events"
QUERY = "/v1/query"
SQL = "SELECT timestamp, icao24, altitude FROM flights"
NDJSON = {"content-type": "application/x-ndjson"}
PLAIN = {"accept-encoding": "identity"}


def append(api: Any, count: int, first: int = 0) -> None:
    answer = api.post(EVENTS, content=as_ndjson(rows_of(count, first)), headers=NDJSON)
    assert answer.status_code == 200, answer.text


def ask(api: Any, method: str, path: str = EVENTS, **more: Any) -> Any:
    headers = PLAIN | more.pop("headers", {})
    params = {"format": "csv", **({"q": SQL} if path == QUERY else {}), **more.pop("params", {})}
    return api.request(method, path, params=params, headers=headers, **more)


@pytest.mark.parametrize(
    ("path", "format"),
    [
        *((EVENTS, format) for format in ("json", "csv", "parquet")),
        *((QUERY, format) for format in ("json", "ndjson", "arrow")),
    ],
)
def test_pieces_make_the_answer(api: Any, path: str, format: str) -> None:
    append(api, 500)
    params = {"format": format}
    whole = ask(api, "GET", path, params=params)
    head = ask(api, "HEAD", path, params=params)
    assert (head.status_code, head.content) == (200, b"")
    size = int(head.headers["content-length"])
    assert head.headers["accept-ranges"] == "bytes"
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert head.headers["x-row-count"] == "500"
    tag = head.headers["etag"]
    pieces = []
    for start in range(0, size, 7000):
        wanted = {"range": f"bytes={start}-{start + 6999}", "if-match": tag}
        piece = ask(api, "GET", path, params=params, headers=wanted)
        assert piece.status_code == 206
        end = min(size, start + 7000) - 1
        assert piece.headers["content-range"] == f"bytes {start}-{end}/{size}"
        assert piece.headers["etag"] == tag
        assert int(piece.headers["content-length"]) == len(piece.content)
        pieces.append(piece.content)
    if format != "json" or path == EVENTS:  # an envelope has the id and the time of the query
        assert b"".join(pieces) == whole.content
    assert len(b"".join(pieces)) == size


def test_ranges_of_one_file_agree_while_events_come(api: Any) -> None:
    append(api, 100)
    head = ask(api, "HEAD")
    first = ask(api, "GET", headers={"range": "bytes=0-999"})
    append(api, 50, first=100)
    rest = ask(api, "GET", headers={"range": "bytes=1000-"})
    text = (first.content + rest.content).decode()
    assert text.count("\n") == 101  # with the header
    assert first.headers["etag"] == rest.headers["etag"] == head.headers["etag"]

    again = ask(api, "HEAD")  # who begins again gets what is new
    assert again.headers["etag"] != head.headers["etag"]
    assert again.headers["x-row-count"] == "150"
    named = {"range": "bytes=0-9", "if-match": head.headers["etag"]}
    assert ask(api, "GET", headers=named).status_code == 206  # the old one is still there by name
    unknown = {"range": "bytes=0-9", "if-match": '"another"'}
    refused = ask(api, "GET", headers=unknown)
    assert (refused.status_code, refused.json()["code"]) == (412, "precondition-failed")
    whole = ask(api, "GET", headers={"range": "bytes=0-9", "if-range": '"another"'})
    assert (whole.status_code, whole.headers["x-row-count"]) == (200, "150")


def test_an_answer_that_the_client_has_is_not_sent(api: Any) -> None:
    append(api, 20)
    for headers in (PLAIN, {"accept-encoding": "gzip"}):
        plain = ask(api, "GET", headers=headers)
        tag = plain.headers["etag"]
        for given in (tag, f'W/{tag}, "x"', "*"):
            same = ask(api, "GET", headers={**headers, "if-none-match": given})
            assert (same.status_code, same.content) == (304, b""), given
            assert same.headers["etag"] == tag
            assert same.headers["cache-control"] == "no-store"
        append(api, 1, first=1000 if headers is PLAIN else 2000)
        other = ask(api, "GET", headers={**headers, "if-none-match": tag})
        assert other.status_code == 200
        assert other.headers["etag"] != tag
    known = {"if-none-match": ask(api, "HEAD", QUERY).headers["etag"]}
    assert ask(api, "HEAD", QUERY, headers=known).status_code == 304


def test_ranges_beyond_the_end_and_those_that_are_none(api: Any) -> None:
    append(api, 3)
    size = int(ask(api, "HEAD").headers["content-length"])
    beyond = ask(api, "GET", headers={"range": f"bytes={size}-"})
    assert (beyond.status_code, beyond.json()["code"]) == (416, "range-not-satisfiable")
    assert beyond.headers["content-range"] == f"bytes */{size}"
    for text in ("bytes=5-2", "bytes=-", "lines=1-2", "bytes=0-1,4-5", "bytes=a-b", "9" * 5000):
        whole = ask(api, "GET", headers={"range": text})
        assert (whole.status_code, len(whole.content)) == (200, size), text
    assert ask(api, "GET", headers={"range": "bytes=-5"}).headers["content-range"] == (
        f"bytes {size - 5}-{size - 1}/{size}"
    )


def test_a_range_without_a_head_before_it_makes_the_file(api: Any) -> None:
    append(api, 10)
    piece = ask(api, "GET", headers={"range": "bytes=0-8"})
    assert (piece.status_code, piece.content) == (206, b"timestamp")
    zipped = ask(api, "GET", headers={"range": "bytes=0-8", "accept-encoding": "gzip"})
    assert "content-encoding" not in zipped.headers
    assert zipped.content == b"timestamp"


def test_errors_are_those_of_a_plain_get(api: Any) -> None:
    append(api, 3)
    assert ask(api, "HEAD", "/v1/streams/nosuch/events").status_code == 404
    assert ask(api, "HEAD", QUERY, params={"q": "SELECT nosuch FROM flights"}).status_code == 400
    wrong = ask(
        api, "GET", QUERY, params={"q": "DROP STREAM flights"}, headers={"range": "bytes=0-"}
    )
    assert (wrong.status_code, wrong.json()["code"]) == (403, "read-only-store")
    ranged = api.post(QUERY, content=SQL, headers={"range": "bytes=0-3"})  # is of GET alone
    assert ranged.status_code == 200


def test_nobody_is_given_the_file_of_another(database: Any, serve_app: Callable[..., Any]) -> None:
    api = serve_app(database)
    assert api.post("/v1/streams", json=SPEC).status_code == 201
    append(api, 5)
    mine, theirs, none = (
        {"authorization": f"Bearer {create_token(database.path, name, ['read'], streams)[1]}"}
        for name, streams in (("a", ["*"]), ("b", ["*"]), ("c", ["x*"]))
    )
    api = serve_app(database)
    tag = ask(api, "HEAD", headers=mine).headers["etag"]
    server = api.app.state.server
    assert len(server.answers) == 1
    ranged = {"range": "bytes=0-3", "if-match": tag}
    assert ask(api, "GET", headers=ranged | none).status_code == 403
    assert ask(api, "GET", headers=ranged).status_code == 401
    assert ask(api, "GET", headers=ranged | theirs).status_code == 206  # equal, but made anew
    assert len(server.answers) == 2
    database.stream("flights")
    server.forget_stream("flights")
    assert len(server.answers) == 0


def test_a_file_is_only_so_large(database: Any, serve_app: Callable[..., Any]) -> None:
    api = serve_app(database, max_result_bytes=4000)
    assert api.post("/v1/streams", json=SPEC).status_code == 201
    append(api, 200)
    refused = ask(api, "GET", headers={"range": "bytes=0-3"})
    assert (refused.status_code, refused.json()["code"]) == (413, "resource-limit")
    assert api.app.state.server.answers.used == 0
    assert ask(api, "GET").status_code == 200  # streams
    for limit in (1, 2, 3, 20, 10):  # small ones make room for each other
        assert ask(api, "HEAD", params={"limit": limit}).status_code == 200
        assert api.app.state.server.answers.used <= 2000


def test_what_is_not_read_is_removed(tmp_path: Path) -> None:
    clock = itertools.count()
    kept = AnswerCache(tmp_path, 1000, 5.0, lambda: float(next(clock)))
    file = kept.begin("me")
    kept.write(file, b"abc")
    opened = kept.keep(file, "what", {})
    assert (opened.piece(1, 2), kept.used) == (b"bc", 3)
    same = kept.find("me", "what", frozenset())
    assert same is not None
    same.file.close()
    assert kept.find("me", "other", frozenset()) is None
    for _ in range(6):
        next(clock)
    assert kept.find("me", "what", frozenset()) is None
    assert opened.piece(0, 3) == b"abc"  # who reads it goes on
    opened.file.close()
    begun = kept.begin("me")
    with pytest.raises(ResourceLimit, match="500 bytes"):
        kept.write(begun, bytes(501))
    kept.abandon(begun)
    assert kept.used == 0


@pytest.mark.parametrize(
    ("text", "size", "told"),
    [
        ("bytes=0-0", 10, (206, 0, 0)),
        ("bytes=2-100", 10, (206, 2, 9)),
        ("bytes=-3", 10, (206, 7, 9)),
        ("bytes=-30", 10, (206, 0, 9)),
        ("bytes=3-", 10, (206, 3, 9)),
        ("BYTES= 3-4 ", 10, (206, 3, 4)),
        ("bytes=4-3", 10, (200, 0, 9)),
        ("bytes=-0", 10, None),
        ("bytes=10-", 10, None),
        ("bytes=0-", 0, None),
        ("items=0-1", 10, (200, 0, 9)),
    ],
)
def test_ranges(text: str, size: int, told: tuple[int, int, int] | None) -> None:
    asked = FileRequest(False, text, None, None, None)
    if told is None:
        with pytest.raises(Problem) as raised:
            asked.judge('"t"', size)
        assert raised.value.status == 416
    else:
        assert asked.judge('"t"', size) == Judgement(*told)


def test_programs_that_read_files_read_results(database: Any, live: Callable[..., Any]) -> None:
    served = live(database)
    append_to = served.http
    assert append_to.post("/v1/streams", json=SPEC).status_code == 201
    append(append_to, 3000)
    base = f"http://127.0.0.1:{served.port}"
    query = f"{base}{QUERY}?q={SQL.replace(' ', '%20')}"
    events = f"{base}{EVENTS}?format="
    assert pl.read_csv(query + "&format=csv").height == 3000
    assert pl.read_parquet(query + "&format=parquet").shape == (3000, 3)
    assert pl.read_parquet(events + "parquet").shape == (3000, 4)
    assert pl.read_ndjson(io.BytesIO(served.http.get(events + "ndjson").content)).height == 3000
