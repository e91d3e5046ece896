"""Small appends: read at the edge and gathered, with the answers of the long way."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.catalog.streams import handle_of
from chronicle.errors import ChronicleError, StorageFull
from chronicle.schema import StreamSchema
from chronicle.server.access.limits import ByteBudget
from chronicle.server.service.bodies import Body, read_events, time_format_of
from chronicle.server.service.gathering import Gathering, SmallReader
from chronicle.tests.patience import PATIENCE_S, wait_until

from ..rounds import rounds
from .flights import events
from .test_server_process import SPEC, Process

NDJSON = {"content-type": "application/x-ndjson"}
LINE = '{"timestamp": "2018-08-01T05:00:%02dZ", "icao24": "a", "altitude": %d.5}'

COLUMNS = {
    "b": (pa.bool_(), ["true", "false"]),
    "i": (pa.int64(), ["-7", "9223372036854775807"]),
    "h": (pa.int8(), ["127", "-128"]),
    "u": (pa.uint64(), ["7", "18446744073709551615"]),
    "x": (pa.float64(), ["0.1", "7", "1e300"]),
    "f": (pa.float32(), ["0.1", "7", "3.4e38"]),
    "s": (pa.string(), ['"a"', '"a\\"b"', '"ü"', '"a:b,{}"']),
    "w": (pa.timestamp("ms"), ['"2018-08-01T05:00:00.125"', "1533099600"]),
}
"""Types, and values that mostly fit them."""
VALUES = [
    "null", "true", "0", "-0", "1", "1.0", "127", "128", "-129", "9007199254740993",
    "9223372036854775807", "9223372036854775808", "18446744073709551616", "1e400", "-1e-400",
    "0.1", "16777217", "1.00000005960464477540", "3.4028236e38", "1e-40", "NaN", '"1"', '""',
    '"a\\"b"', '"\\\\"', '"\\u00e9"', '"\\ud800"', '"ü"', '"2018-08-01"', '"soon"', "[]", "{}",
    '"2018-08-01T05:00:00.1234Z"', '"2018-08-01T05:00:00+02:00"', "1533099600", "1533099600123",
]  # fmt: skip


def carefully(body: bytes, format: str, schema: StreamSchema, precision: str | None) -> Any:
    with contextlib.closing(Body(None, None, None)) as taken:
        taken.write(body)
        try:
            return read_events(taken, format, schema, precision, 1 << 20)[0]
        except ChronicleError as error:
            return error


def bodies(chosen: random.Random, times: list[str]) -> Iterator[tuple[bytes, str]]:
    """Records, most of them good, in all sorts of layouts."""
    while True:
        records = []
        for _ in range(chosen.choice([1, 1, 2, 5])):
            time = chosen.choice(times if chosen.random() < 0.9 else VALUES)
            fields = [f'"t": {time}']
            for name in chosen.sample(sorted(COLUMNS), chosen.randrange(4)):
                value = chosen.choice(COLUMNS[name][1] if chosen.random() < 0.8 else VALUES)
                fields += [f'"{name}": {value}']
            fields += chosen.choices(fields, k=chosen.random() < 0.05)
            if chosen.random() < 0.03:
                fields.append(chosen.choice(['"T": 1', '"zz": 1', '"": 1', '"\\u0078": 1']))
            space = chosen.choice(["", " ", "\t"])
            records.append("{" + f",{space}".join(fields) + "}")
        format = chosen.choice(["json", "ndjson"])
        if format == "ndjson":
            text = chosen.choice(["\n", "\r\n", "\n\n"]).join(records)
        elif len(records) == 1 and chosen.random() < 0.5:
            text = records[0]
        else:
            text = "[" + ",".join(records) + "]"
        text += chosen.choice(["\n", "", "", " ", "\r\n", "}"])
        yield text.encode("utf-8", "surrogatepass"), format


@pytest.mark.parametrize("precision", [None, "s", "ms"])
def test_the_short_way_reads_what_the_careful_reader_reads(precision: str | None) -> None:
    chosen = random.Random(7)
    fields = [pa.field("t", pa.timestamp("us"), False)]
    fields += [pa.field(name, type_) for name, (type_, _) in COLUMNS.items()]
    times = ['"2018-08-01T05:00:00Z"', '"2018-08-01"'] if precision is None else ["1533099600"]
    schema = StreamSchema(pa.schema(fields), "t")
    reader = SmallReader(schema, time_format_of(schema, precision))
    taken = left = 0
    for _, (body, format) in zip(range(rounds(750, 1500)), bodies(chosen, times), strict=False):
        found = reader.columns(body, lines=format == "ndjson")
        if found is not None:
            try:
                batch, bad = reader.batch([found, found])
            except (ValueError, OverflowError):
                found = None
        if found is None or bad.any():
            left += 1
            continue
        taken += 1
        table = carefully(body, format, schema, precision)
        assert isinstance(table, pa.Table), (body, table)
        assert pa.Table.from_batches([batch]) == pa.concat_tables([table, table]), body
    assert taken > rounds(100, 200), "nothing was taken"
    assert left > rounds(100, 200), "nothing was left to be read with care"


def post(api: Any, *lines: str, **more: Any) -> Any:
    return api.post("/v1/streams/flights/events", content="\n".join(lines), headers=NDJSON, **more)


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of the bodies that take the short way."""
    seen: list[int] = []
    append = Gathering.append

    async def noted(self: Gathering, stream: Any, reader: Any, body: Any, *more: Any) -> Any:
        seen.append(body.rows)
        return await append(self, stream, reader, body, *more)

    monkeypatch.setattr(Gathering, "append", noted)
    return seen


def test_one_event_takes_the_short_way(api: Any, gathered: list[int]) -> None:
    first = post(api, LINE % (10, 1))
    assert first.json() == {
        "appended": 1, "late": 0, "count": 1, "version": 1, "position": "1", "durable": True
    }  # fmt: skip
    assert first.headers["content-type"] == "application/json"
    assert {"parse", "queue", "append", "total"} <= {
        phase.partition(";")[0] for phase in first.headers["server-timing"].split(", ")
    }
    later = post(api, LINE % (5, 2), LINE % (20, 3))
    assert later.json().items() >= {"appended": 2, "late": 1, "count": 3, "version": 2}.items()
    one = api.post("/v1/streams/flights/events", json={"timestamp": "2018-08-01T05:00:30Z"})
    assert one.json()["count"] == 4
    assert gathered == [1, 2, 1]
    assert [row["altitude"] for row in events(api)] == [2.5, 1.5, 3.5, None]
    text = api.get("/metrics").text
    route = 'method="POST",route="/v1/streams/{stream}/events",status="200"'
    assert f"chronicle_http_requests_total{{{route}}} 3.0" in text
    assert 'chronicle_appended_events_total{format="ndjson"} 3.0' in text
    assert "chronicle_late_events_total 1.0" in text
    assert "chronicle_append_duration_seconds_count 3.0" in text
    server = api.app.state.server
    assert (server.bodies.running, server.appends.running, server.uploads.used) == (0, 0, 0)


@pytest.mark.parametrize(
    ("path", "content", "headers"),
    [
        ("flights", LINE % (1, 1), {**NDJSON, "idempotency-key": "k"}),
        ("flights?on_error=skip", LINE % (1, 1), NDJSON),
        ("flights", (LINE % (1, 1)).replace("1.5", "1.5e0, 7"), NDJSON),
        ("flights", '{"timestamp": "2018-08-01T05:00:00Z", "altitude": "7"}', NDJSON),
        ("flights", "timestamp\n2018-08-01", {"content-type": "text/csv"}),
        ("flights", "{}" * 20_000, NDJSON),
        ("nothing", LINE % (1, 1), NDJSON),
        ("flights?precision=h", LINE % (1, 1), NDJSON),
        ("flights?wish=1", LINE % (1, 1), NDJSON),
    ],
)
def test_what_is_unusual_takes_the_long_way(
    api: Any, gathered: list[int], path: str, content: str, headers: dict[str, str]
) -> None:
    name, _, query = path.partition("?")
    api.post(f"/v1/streams/{name}/events?{query}", content=content, headers=headers)
    assert gathered == []


def test_times_with_and_without_an_offset_are_refused_in_one_body(
    api: Any, gathered: list[int]
) -> None:
    zoned, local = '{"timestamp": "2018-08-01T05:00:00Z"}', '{"timestamp": "2018-08-01T05:00:01"}'
    mixed = post(api, zoned, local)
    assert mixed.status_code == 400
    assert "has no offset" in mixed.json()["errors"][0]["reason"]
    assert "send all of them with an offset" in mixed.json()["errors"][0]["reason"]
    assert gathered == []
    assert post(api, zoned).json()["count"] == 1
    assert post(api, local, local).json()["count"] == 3
    assert gathered == [1, 2]


def test_a_bad_body_fails_alone(api: Any, gathered: list[int]) -> None:
    server = api.app.state.server
    held = [api.run(server.appends.enter(f"c{n}")) for n in range(server.appends.running_max)]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        lines = [LINE % (n, n) for n in range(20)]
        lines[7] = lines[7].replace("05:00:07", "25:00:00")
        lines[9] = '{"timestamp": "2018-08-01T05:00:09Z", "speed": 1}'
        asked = [pool.submit(post, api, line) for line in lines]
        while len(gathered) < 19:
            assert not any(each.done() and each.result().status_code == 200 for each in asked)
        for slot in held:
            api.loop.call_soon_threadsafe(slot.release)
        answers = [each.result() for each in asked]
    assert [n for n, answer in enumerate(answers) if answer.status_code != 200] == [7, 9]
    assert answers[7].json()["errors"][0]["column"] == "timestamp"
    assert answers[9].json()["code"] == "schema-mismatch"
    assert sorted(row["altitude"] for row in events(api)) == [
        n + 0.5 for n in range(20) if n not in (7, 9)
    ]
    assert api.get("/v1/streams/flights").json()["version"] < 6, "they were not gathered"


def test_what_the_disk_refuses_is_told_to_all(
    api: Any, database: Any, monkeypatch: pytest.MonkeyPatch, gathered: list[int]
) -> None:
    def full(*_: Any) -> None:
        raise StorageFull("no space is left")

    monkeypatch.setattr(handle_of(database.stream("flights")).commits.log, "append", full)
    refused = post(api, LINE % (1, 1))
    assert (refused.status_code, refused.json()["code"]) == (507, "storage-full")
    monkeypatch.undo()
    assert post(api, LINE % (1, 1)).json()["count"] == 1


def test_tokens_and_limits_hold_on_the_short_way(
    database: Any, serve_app: Callable[..., Any], gathered: list[int]
) -> None:
    from chronicle.server import create_token

    from .flights import SPEC as FLIGHTS

    _, writer = create_token(database.path, "w", ["write"], ["flights"])
    _, reader = create_token(database.path, "r", ["read"])
    api = serve_app(database)

    def ask(secret: str | None, name: str = "flights") -> int:
        headers = {**NDJSON} if secret is None else {**NDJSON, "authorization": f"Bearer {secret}"}
        answer = api.post(f"/v1/streams/{name}/events", content=LINE % (1, 1), headers=headers)
        return int(answer.status_code)

    made = api.post("/v1/streams", json=FLIGHTS, headers={"authorization": f"Bearer {writer}"})
    assert made.status_code == 201
    asked = [ask(None), ask("nonsense"), ask(reader), ask(writer, "other"), ask(writer)]
    assert asked == [401, 401, 403, 403, 200]
    assert gathered == [1]
    server = api.app.state.server
    server.uploads = ByteBudget(10)
    assert ask(writer) == 413
    assert server.bodies.running == 0


def test_a_stream_that_changes_between_is_read_anew(api: Any, database: Any) -> None:
    assert post(api, LINE % (1, 1)).status_code == 200
    database.stream("flights").add_column("speed", pa.float64())
    assert post(api, LINE % (2, 2)).json()["count"] == 2
    assert post(api, '{"timestamp": "2018-08-01T05:00:03Z", "speed": 3}').json()["count"] == 3
    api.delete("/v1/streams/flights")
    assert post(api, LINE % (1, 1)).status_code == 404


@pytest.mark.crash
def test_what_was_acknowledged_outlives_a_kill(tmp_path: Path) -> None:
    """Sixteen clients append one event at a time; the server is killed in the middle."""
    server = Process(tmp_path / "store")
    assert server.http.post("/v1/streams", json=SPEC).status_code == 201
    acknowledged: list[int] = []
    sent: list[int] = []
    enough = threading.Event()

    def write(number: int) -> None:
        import httpx

        with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
            for turn in range(10_000):
                t = number * 10_000 + turn
                sent.append(t)
                try:
                    answer = http.post("/v1/streams/s/events", json=[{"t": t, "x": 0.5}])
                except httpx.HTTPError:
                    return
                if answer.status_code == 200:
                    acknowledged.append(t)
                if len(acknowledged) > 300:
                    enough.set()

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        writing = [pool.submit(write, number) for number in range(16)]
        assert enough.wait(PATIENCE_S)
        server.stop(signal.SIGKILL)
        for each in writing:
            each.result()
    with chronicle.open(tmp_path / "store") as database:
        stored = database.sql("SELECT t FROM s").arrow()["t"].to_pylist()
    assert len(stored) == len(set(stored)), "an event is there twice"
    assert set(acknowledged) <= set(stored) <= set(sent)


# ------------------------------------------------------------------ acknowledged commit by commit


@contextlib.contextmanager
def conversation(served: Any, query: str) -> Iterator[tuple[Any, Iterator[dict[str, Any]]]]:
    """A connection whose body goes on, and the lines of its answer."""
    with served.connect() as line, contextlib.closing(http.client.HTTPResponse(line)) as answer:
        line.sendall(
            f"POST /v1/streams/s/events?ack=each{query} HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        answer.begin()
        assert answer.status == 200
        yield line, map(json.loads, answer)


def say(line: Any, *rows: str) -> None:
    data = "".join(f"{row}\n" for row in rows).encode()
    line.sendall(b"%x\r\n%s\r\n" % (len(data), data))


@pytest.fixture
def served(database: Any, live: Callable[..., Any]) -> Any:
    server = live(database)
    assert server.http.post("/v1/streams", json=SPEC).status_code == 201
    return server


def test_each_commit_is_acknowledged_while_the_body_comes(served: Any, database: Any) -> None:
    with conversation(served, "&commit_events=100") as (line, answers):
        say(line, *(f'{{"t": {t}, "x": 1}}' for t in range(100)))
        first = next(answers)
        assert first == {"lines": 100, "appended": 100, "late": 0, "count": 100, "version": 1}
        say(line, *(f'{{"t": {t}, "x": 1}}' for t in range(100, 350)))
        lines = 100
        while lines < 350:
            told = next(answers)
            assert 0 < told["appended"] <= 100
            lines = told["lines"]
        assert database.stream("s").count == 350
        say(line, '{"t": 5, "x": 1}', "", '{"t": 400, "x": "7"}')  # the last is read with care
        while lines < 353:
            told = next(answers)
            lines = told["lines"]
        assert told["count"] == 352
        line.sendall(b"0\r\n\r\n")
        assert list(answers) == [{"$end": {"lines": 353, "appended": 352}}]


def test_a_line_that_is_no_event_ends_it_and_leaves_what_was_acknowledged(
    served: Any, database: Any
) -> None:
    with conversation(served, "&commit_events=2") as (line, answers):
        say(line, '{"t": 1}', '{"t": 2}', '{"t": 3}', '{"t": "soon"}', '{"t": 5}')
        assert [next(answers)["lines"]] == [2]
        error = next(answers)["$error"]
        assert (error["code"], error["lines"], error["errors"][0]["row"]) == ("invalid-data", 2, 2)
    assert database.stream("s").count == 2


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("format=csv", {}),
        ("on_error=skip", {}),
        ("", {"idempotency-key": "k"}),
        ("", {"content-encoding": "gzip"}),
        ("precision=s", {}),
        ("commit_events=0", {}),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    served: Any, query: str, headers: dict[str, str]
) -> None:
    answer = served.http.post(
        f"/v1/streams/s/events?ack=each&{query}", content=b"", headers={**NDJSON, **headers}
    )
    assert answer.status_code in (400, 422), answer.text


def test_lines_are_bounded_and_a_stop_is_told(database: Any, live: Callable[..., Any]) -> None:
    server = live(database, max_body_bytes=5000)
    server.http.post("/v1/streams", json=SPEC)
    with conversation(server, "") as (line, answers):
        line.sendall(b"1800\r\n" + b" " * 0x1800 + b"\r\n")
        assert next(answers)["$error"]["code"] == "body-too-large"
    with conversation(server, "") as (line, answers):
        say(line, '{"t": 1}')
        assert next(answers)["lines"] == 1
        server.app.state.server.stopping = True
        assert next(answers)["$error"]["code"] == "not-ready"
    server.app.state.server.stopping = False
    wait_until(lambda: server.app.state.server.bodies.running == 0)
