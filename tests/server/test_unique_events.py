"""Streams with ``unique``: the same in every interface, and counted in every answer."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.catalog.streams import append_each
from chronicle.errors import AttributeNotFound, InvalidArgument, SqlError

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("device", pa.string()), ("seq", pa.int64())])
NDJSON = {"content-type": "application/x-ndjson"}
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
CREATE = (
    "CREATE STREAM s (at TIMESTAMP, device VARCHAR, seq BIGINT) TIMESTAMP BY at "
    "WITH (unique = 'device, seq', within = '1 hour')"
)


def rows(*seqs: int, minute: int = 0) -> list[dict[str, Any]]:
    return [
        {"at": f"2024-05-01T12:{minute + i:02d}:00", "device": "a", "seq": seq}
        for i, seq in enumerate(seqs)
    ]


def lines(*seqs: int, minute: int = 0) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows(*seqs, minute=minute))


def table(*seqs: int, minute: int = 0) -> pa.Table:
    columns = {name: [row[name] for row in rows(*seqs, minute=minute)] for name in SCHEMA.names}
    columns["at"] = pa.array(columns["at"]).cast(pa.timestamp("us"))
    return pa.table(columns, schema=SCHEMA)


def arrow(*seqs: int) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_table(table(*seqs))
    return sink.getvalue()


@pytest.fixture
def stream(database: Any) -> Any:
    database.sql(CREATE)
    return database.stream("s")


def seqs_of(stream: Any) -> list[int]:
    found: list[int] = stream.scan(columns=["seq"]).read_all().column(0).to_pylist()
    return found


# ----------------------------------------------------------------------------------- embedded


def test_every_kind_of_data_that_python_appends(stream: Any) -> None:
    pandas = pytest.importorskip("pandas")
    assert stream.append(rows(1, 2)).duplicates == 0
    for again in (rows(1, 2), table(1, 2), table(1, 2).to_batches()[0], table(1, 2).to_reader()):
        assert stream.append(again).duplicates == 2
    assert stream.append(pandas.DataFrame(table(2, 3).to_pandas())).appended == 1
    done = append_each(stream, [table(3, 4), table(4), table(5)])
    assert [(each.appended, each.duplicates) for each in done] == [(1, 1), (0, 1), (1, 0)]
    assert sorted(seqs_of(stream)) == [1, 2, 3, 4, 5]


def test_a_reader_that_is_appended_in_parts_counts_them_all(
    stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chronicle.formats import tables

    monkeypatch.setattr(tables, "CHUNK_BYTES", 1)
    reader = pa.RecordBatchReader.from_batches(SCHEMA, iter(table(1, 2, 1, 2).to_batches(1)))
    assert stream.append(reader).duplicates == 2


def test_it_is_set_when_the_stream_is_created_and_later(database: Any) -> None:
    made = database.create_stream("p", SCHEMA, "at", unique=["device", "seq"], within="1 hour")
    made.append(rows(1))
    assert made.append(rows(1)).duplicates == 1
    made.set_options(unique=None)
    assert made.append(rows(1)).duplicates == 0
    made.set_options(unique="SEQ", within="5 minutes")
    assert made.append(rows(1)).duplicates == 1
    assert database.sql(
        "SELECT unique_key, within FROM chronicle.streams WHERE stream = 'p'"
    ).fetchall() == [("seq", "5 minutes")]
    with pytest.raises(AttributeNotFound, match="speed"):
        made.set_options(unique="speed", within="5 minutes")


def test_statements(database: Any, stream: Any) -> None:
    def ask(text: str) -> list[Any]:
        found: list[Any] = database.sql(text).fetchall()
        return found

    values = "VALUES ('2024-05-01 12:00:00', 'a', 1), ('2024-05-01 12:20:00', 'a', 1)"
    inserted = database.sql(f"INSERT INTO s {values}").arrow()
    assert inserted.to_pydict() == {"count": [1], "duplicates": [1]}
    assert ask("INSERT INTO s SELECT at, device, seq FROM s") == [(0, 1)]
    assert ask("CREATE STREAM copy WITH (unique = 'device', within = '1 day') AS SELECT * FROM s")
    assert ask(
        "CREATE STREAM few WITH (unique = 'device', within = '1 day') AS "
        "SELECT at, device FROM s UNION ALL SELECT at + INTERVAL '1' HOUR, device FROM s"
    ) == [("created stream few with 1 events; 1 duplicates left out",)]
    with pytest.raises(SqlError, match="part of what makes events"):
        ask("UPDATE s SET seq = seq + 1")
    with pytest.raises(InvalidArgument, match="unique = NULL"):
        ask("ALTER STREAM s DROP COLUMN seq")
    ask("ALTER STREAM s RENAME COLUMN seq TO number")
    assert ask("INSERT INTO s VALUES ('2024-05-01 12:10:00', 'a', 1)") == [(0, 1)]
    ask("ALTER STREAM s SET (unique = NULL)")
    assert database.sql("INSERT INTO s VALUES ('2024-05-01 12:10:00', 'a', 1)").arrow().to_pydict(
    ) == {"count": [1]}  # fmt: skip
    ask("UPDATE s SET number = 2")


# --------------------------------------------------------------------------------------- REST


def test_a_stream_is_created_over_rest(api: Any, database: Any) -> None:
    columns = {"at": "timestamp", "device": "varchar", "seq": "bigint"}
    for name, settings in (
        ("a", {"unique": "device, seq", "within": "1 hour"}),
        ("b", {"unique": ["device", "seq"], "within": "1 hour"}),
        ("c", {"options": {"unique": "device, seq", "within": "1 hour"}}),
    ):
        spec = {"name": name, "time": "at", "schema": columns, **settings}
        assert api.post("/v1/streams", json=spec).status_code == 201
        assert catalog_of(database).stream_options(name)["unique"] == ("device", "seq")
    spec = {"name": "d", "time": "at", "schema": columns, "unique": "device"}
    refused = api.post("/v1/streams", json=spec)
    assert refused.status_code == 400
    assert "go together" in refused.json()["detail"]


def test_small_and_large_bodies_say_how_many_were_left_out(api: Any, stream: Any) -> None:
    def send(content: bytes, **query: str) -> Any:
        return api.post("/v1/streams/s/events", params=query, content=content, headers=NDJSON)

    first = send(lines(1, 2)).json()
    assert (first["appended"], first["duplicates"], first["count"]) == (2, 0, 2)
    again = send(lines(2, 3)).json()
    assert (again["appended"], again["duplicates"], again["version"]) == (1, 1, 2)
    nothing = send(lines(1, 2, 3)).json()
    assert (nothing["appended"], nothing["duplicates"], nothing["version"]) == (0, 3, 2)
    large = b"".join(lines(*range(60)) for _ in range(30))
    told = send(large).json()
    assert (told["appended"], told["duplicates"]) == (57, 1743)
    skipped = send(lines(7) + b'{"at": "never"}\n', on_error="skip").json()
    assert (skipped["appended"], skipped["duplicates"], skipped["rejected"]) == (0, 1, 1)
    body = arrow(58, 59, 60)
    told = api.post("/v1/streams/s/events", content=body, headers=ARROW).json()
    assert (told["appended"], told["duplicates"]) == (1, 2)
    assert sorted(seqs_of(stream)) == list(range(61))


def test_without_unique_an_answer_is_what_it_was(api: Any, database: Any) -> None:
    database.create_stream("plain", SCHEMA, "at")
    told = api.post("/v1/streams/plain/events", content=lines(1, 1), headers=NDJSON).json()
    assert "duplicates" not in told


def test_each_commit_of_a_connection_that_goes_on_is_told(api: Any, stream: Any) -> None:
    answer = api.post(
        "/v1/streams/s/events?ack=each&commit_events=2",
        content=lines(1, 2) + lines(2, 3),
        headers=NDJSON,
    )
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert [(each["appended"], each["duplicates"]) for each in told[:-1]] == [(2, 0), (1, 1)]
    assert told[-1]["$end"]["appended"] == 3


def test_line_protocol_files_and_transactions(api: Any, stream: Any) -> None:
    text = b"s,device=a seq=1i 1714564800000000000\n" * 2
    assert api.post("/api/v2/write?bucket=b", content=text).status_code == 204
    assert stream.count == 1
    sink = io.BytesIO()
    pq.write_table(table(1, 2), sink)
    told = api.post("/v1/ingest?stream=s&format=parquet&time=at", content=sink.getvalue()).json()
    assert (told["appended"], told["duplicates"]) == (1, 1)
    part = "/v1/streams/s/transactions/t1"
    put = api.put(f"{part}/parts/a", content=arrow(1, 2, 3), headers=ARROW)
    assert put.status_code == 200
    for replayed in (False, True):
        told = api.post(f"{part}/commit", json={"parts": ["a"]}).json()
        assert (told["appended"], told["duplicates"], told["replayed"]) == (1, 2, replayed)


def test_clients_create_append_and_alter(database: Any, live: Callable[..., Any]) -> None:
    running = live(database)
    url = f"http://127.0.0.1:{running.port}"
    with chronicle.connect(url) as client:
        stream = client.create_stream("s", SCHEMA, "at", unique=["device", "seq"], within="1 hour")
        assert stream.append(rows(1, 2)).appended == 2
        assert stream.append(rows(1, 2, 3)).duplicates == 2
        stream.set_options(unique=["seq"], within="2 hours")
        assert stream.append(rows(3)).duplicates == 1

    async def asynchronous() -> tuple[int, int]:
        async with chronicle.aconnect(url) as client:
            stream = await client.create_stream("t", SCHEMA, "at", unique="seq", within="1 hour")
            done = await stream.append(rows(1, 1, 2))
            return done.appended, done.duplicates

    assert asyncio.run(asynchronous()) == (2, 1)


# ------------------------------------------------------------------------------- command line


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "files"


def test_files_are_ingested_once(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from chronicle.cli import run

    source = tmp_path / "events.ndjson"
    source.write_bytes(lines(1, 2) + lines(2, 3))
    command = ["ingest", str(source), "--store", str(store), "--stream", "s", "--json"]
    more = ["--create", "--time", "at", "--unique", "device, seq", "--within", "1 hour"]
    assert run([*command, *more]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["rows"], report["stored"], report["duplicates"]) == (4, 3, 1)
    assert run(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["rows"], report["stored"], report["duplicates"]) == (4, 0, 4)
    assert run(command[:-1]) == 0
    assert "0 events (4 duplicates left out)" in capsys.readouterr().out
    assert run([*command, "--unique", "seq"]) == 2
    assert "--create" in capsys.readouterr().err


def test_large_files_are_looked_through_at_their_commit(store: Path) -> None:
    from chronicle.ingest import IngestRequest, ingest
    from chronicle.ingest.sinks import Target

    many = 70_000  # more than are appended at once
    source = store.parent / "events.parquet"
    at = pa.array(range(0, many * 1000, 1000), pa.int64()).cast(pa.timestamp("us"))
    device, seq = pa.array(["a"] * many), pa.array([i // 2 for i in range(many)])
    pq.write_table(pa.table([at, device, seq], schema=SCHEMA), source)
    given: dict[str, Any] = {"inputs": [str(source)], "stream": "s"}
    first = ingest(
        IngestRequest(**given, time="at", create=True, unique="device, seq", within="1 hour"),
        Target(store),
    )
    assert (first.stored, first.duplicates) == (many // 2, many // 2)
    again = ingest(IngestRequest(**given), Target(store))
    assert (again.stored, again.duplicates, again.count) == (0, many, many // 2)
