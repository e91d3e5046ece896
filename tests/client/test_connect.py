"""``chronicle.connect``: the objects of an embedded database, over a server that really runs."""

from __future__ import annotations

import datetime as dt
import inspect
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import chronicle
from chronicle.api.database import Database
from chronicle.catalog.streams import Stream
from chronicle.client import RemoteDatabase, RemoteJob, RemoteLive, RemoteStream
from chronicle.client.asynchronous import AsyncDatabase, AsyncJob, AsyncLive, AsyncStream
from chronicle.client.calls import Call
from chronicle.live.engine import LiveHandle
from chronicle.tests.patience import PATIENCE_S, wait_until

from .conftest import FLIGHTS

MORNING = dt.datetime(2018, 8, 1, 5)
COUNT = 100


def event(number: int) -> dict[str, Any]:
    return {
        "time": MORNING + dt.timedelta(seconds=number),
        "icao24": f"a{number % 7}",
        "altitude": None if number % 10 == 3 else number * 100.5,
        "fuel": Decimal(number) / 4,
        "seen": 2**62 + number,
        "day": dt.date(2018, 8, 1 + number % 5),
        "raw": bytes([number]),
    }


EVENTS = [event(number) for number in range(COUNT)]


@pytest.fixture
def remote(served: Any) -> Iterator[RemoteDatabase]:
    with chronicle.connect(served.url) as database:
        yield database


@pytest.fixture(params=["embedded", "remote"])
def either(request: pytest.FixtureRequest, served: Any) -> Iterator[Any]:
    """Each test runs on the embedded database, and through the server before it."""
    if request.param == "embedded":
        yield served.database
        return
    with chronicle.connect(served.url) as database:
        yield database


@pytest.fixture
def flights(either: Any) -> Any:
    stream = either.create_stream("flights", FLIGHTS, time="time")
    done = stream.append(EVENTS)
    assert (done.appended, done.late, done.count, done.version) == (COUNT, 0, COUNT, 1)
    return stream


# ------------------------------------------------------------------- the same on both


def test_a_stream_is_described(either: Any, flights: Any) -> None:
    assert either.streams() == ["flights"]
    again = either.stream("flights")
    assert (again.name, again.time, again.count, len(again)) == ("flights", "time", COUNT, COUNT)
    assert again.schema == FLIGHTS
    assert again.time_range == (EVENTS[0]["time"], EVENTS[-1]["time"])
    assert again.stats()["events"] == COUNT
    assert either.damaged() == {}
    either.create_stream("flights", FLIGHTS, time="time", if_not_exists=True)
    either.drop_stream("flights")
    either.drop_stream("flights", if_exists=True)
    assert either.streams() == []


def test_whatever_users_have_is_appended(either: Any) -> None:
    schema = pa.schema([pa.field("t", pa.int64(), False), pa.field("x", pa.float64())])
    stream = either.create_stream("s", schema, time="t", options={"durability": "interval"})
    table = pa.table({"t": [1, 2], "x": [0.5, None]})
    stream.append(table)
    stream.append(table.to_batches()[0])
    stream.append(pa.RecordBatchReader.from_batches(table.schema, table.to_batches()))
    stream.append(pd.DataFrame({"t": [3], "x": [1.5]}))
    stream.append(pl.DataFrame({"t": [4], "x": [2.5]}))
    done = stream.append([{"t": np.int64(0), "x": 9.0}], "commit")
    assert (done.late, done.count) == (1, 9)
    assert stream.append([]).appended == 0
    assert stream.scan().read_all().column("t").to_pylist() == [0, 1, 1, 1, 2, 2, 2, 3, 4]


def test_events_are_read(flights: Any) -> None:
    assert flights.scan().read_all().to_pylist() == EVENTS
    found = flights.scan(
        "2018-08-01T05:00:10Z",
        MORNING + dt.timedelta(seconds=50),
        ["altitude", "icao24"],
        "altitude > 1500 AND icao24 = 'a1'",
        limit=2,
    ).read_all()
    assert (
        found.to_pylist()
        == [
            {"altitude": n * 100.5, "icao24": "a1"}
            for n in range(15, 50)
            if n % 7 == 1 and n % 10 != 3
        ][:2]
    )
    assert flights.scan(columns=["raw"], limit=0).read_all().num_rows == 0


def test_aggregates_have_the_types_of_the_attributes(flights: Any) -> None:
    every = ["count", "min", "max", "first", "last"]
    found = flights.aggregate(
        {"altitude": ["sum", "avg", *every], "fuel": ["sum", *every], "seen": "max", "day": every,
         "time": every, "icao24": every, "raw": "first", "SEEN": ["sum", "avg"]}
    )  # fmt: skip
    altitudes = [e["altitude"] for e in EVENTS if e["altitude"] is not None]
    assert found["altitude"]["count"] == len(altitudes)
    assert found["altitude"]["sum"] == pytest.approx(sum(altitudes))
    assert found["fuel"]["sum"] == sum(e["fuel"] for e in EVENTS)
    assert found["seen"] == {"max": 2**62 + COUNT - 1}
    assert found["SEEN"]["sum"] == sum(e["seen"] for e in EVENTS)
    assert found["time"]["max"] == EVENTS[-1]["time"]
    assert found["day"]["min"] == dt.date(2018, 8, 1)
    assert found["raw"] == {"first": b"\0"}
    assert {type(v) for v in found["day"].values()} == {int, dt.date}
    empty = flights.aggregate({"altitude": ["min", "count"]}, start="2019-01-01")
    assert empty == {"altitude": {"min": None, "count": 0}}
    assert flights.aggregate({"altitude": []}) == {"altitude": {}}


def test_sql_and_parameters_of_every_type(either: Any, flights: Any) -> None:
    del flights
    given: dict[str, Any] = {
        "t": MORNING + dt.timedelta(seconds=42),
        "z": dt.datetime(2018, 8, 1, 5, tzinfo=dt.timezone.utc),
        "d": dt.date(2018, 8, 3),
        "f": Decimal("10.50"),
        "i": dt.timedelta(seconds=2, microseconds=1),
        "b": b"\x00\xff",
        "c": dt.time(1, 2, 3),
        "x": float("nan"),
        "n": np.int64(2**61),
        "l": [1, 2],
        "s": "it's",
        "none": None,
    }
    text = ", ".join(f"${name} AS {name}" for name in given)
    row = either.sql(f"SELECT {text} FROM flights WHERE time = $t", given).fetchall()[0]
    said = dict(zip(given, row, strict=True))
    assert np.isnan(said.pop("x"))
    assert said.pop("z") == given.pop("z")
    assert said == {key: value for key, value in given.items() if key != "x"}
    assert either.sql("SELECT count(*) FROM flights WHERE altitude > ?", [9000]).fetchone() == (9,)
    assert either.sql("SELECT ?, ?", [pd.NaT, pd.NA]).fetchone() == (None, None)
    for fine in (pd.Timestamp(1), pd.Timedelta(1)):
        with pytest.raises(chronicle.SqlError, match="finer than a microsecond"):
            either.sql("SELECT ?", [fine])
    with pytest.raises(chronicle.SqlError, match="type object"):
        either.sql("SELECT $x", {"x": object()})
    with pytest.raises(chronicle.SqlError, match="mapping"):
        either.sql("SELECT $x", "x")


def test_results_in_every_form(either: Any, flights: Any) -> None:
    del flights
    text = "SELECT time, icao24, seen FROM flights WHERE altitude > 5000 ORDER BY time"
    wanted = [e for e in EVENTS if (e["altitude"] or 0) > 5000]
    result = either.sql(text)
    assert result.columns == ["time", "icao24", "seen"]
    assert [row[0] for row in result] == [e["time"] for e in wanted]
    assert result.arrow().num_rows == len(result.df()) == result.pl().height == len(wanted)
    assert "Scan" in str(result.plan)
    # any library that knows Arrow's capsules
    assert pl.from_arrow(pa.table(either.sql(text))).height == len(wanted)
    assert pl.DataFrame(either.sql(text)).height == len(wanted)
    assert pa.RecordBatchReader.from_stream(either.sql(text)).read_all().num_rows == len(wanted)
    with either.sql(text) as left:
        next(left.batches())
        with pytest.raises(chronicle.InvalidArgument, match="as batches"):
            left.arrow()
    assert either.sql("INSERT INTO flights (time) VALUES (TIMESTAMP '2020-01-01')").plan is None
    assert either.stream("flights").count == COUNT + 1


def test_deletes(either: Any, flights: Any) -> None:
    times = sorted(time for (time,) in either.sql("SELECT time FROM flights").fetchall())
    with pytest.raises(chronicle.SqlError):
        flights.delete("nothing = 1")
    assert flights.delete("icao24 = 'a0' AND seen IS NOT NULL") > 0
    assert flights.delete("icao24 = 'a0'") < 15
    left = flights.count
    assert flights.delete("icao24 = 'a1'", end=times[0]) == 0
    late = sum(t >= times[50] for (t,) in either.sql("SELECT time FROM flights").fetchall())
    assert flights.delete(None, start=times[50]) == late
    assert flights.count == left - late
    assert flights.delete(None) == left - late


def test_plans(either: Any, flights: Any) -> None:
    flights.create_index("seen")
    assert [found["attribute"] for found in flights.indexes()] == ["seen"]
    text = "SELECT icao24 FROM flights WHERE seen = $x"
    plan = either.explain(text, analyze=True, params={"x": 2**62 + 5})
    assert plan.analyzed
    assert {"Scan", "rows"} <= set(str(plan).replace(":", " ").replace(",", " ").split())
    assert plan.to_dict()["statement"] == text
    flights.drop_index("seen")
    assert flights.indexes() == []


def test_errors_are_the_same(either: Any, flights: Any) -> None:
    with pytest.raises(chronicle.SqlError, match="did you mean altitude") as raised:
        either.sql("SELECT time,\n altitud FROM flights")
    assert (raised.value.line, raised.value.column) == (2, 2)
    assert raised.value.reason.startswith("no column 'altitud'")
    with pytest.raises(chronicle.StreamNotFound, match="there are flights"):
        either.stream("flight")
    with pytest.raises(chronicle.StreamExists):
        either.create_stream("flights", FLIGHTS, time="time")
    with pytest.raises(chronicle.InvalidArgument, match="needs time="):
        either.create_stream("x", FLIGHTS)
    with pytest.raises(chronicle.SchemaMismatch, match="'alt'"):
        flights.append([{"time": MORNING, "alt": 1}])
    with pytest.raises(chronicle.InvalidData, match="row 2") as bad:
        flights.append([{"time": MORNING, "seen": 1}, {"time": MORNING, "seen": "x"}])
    assert bad.value.row == 2
    with pytest.raises(chronicle.AttributeNotFound):
        flights.aggregate({"alt": "min"})
    with pytest.raises(chronicle.AttributeNotFound):
        flights.scan(columns=["alt"])
    with pytest.raises(chronicle.InvalidArgument, match="such as 2018"):
        flights.scan(start="soon")
    with pytest.raises(chronicle.IndexNotFound):
        flights.drop_index("seen")
    with pytest.raises(chronicle.ReadOnlyStore):
        either.sql("INSERT INTO flights (time) VALUES (TIMESTAMP '2020-01-01')", read_only=True)
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b"
    with pytest.raises(chronicle.QueryTimeout):
        either.sql(endless, timeout=0.2).fetchall()
    assert flights.count == COUNT


def test_a_column_that_somebody_else_added(either: Any, flights: Any, served: Any) -> None:
    served.database.stream("flights").add_column("speed", pa.float32())
    later = {**event(COUNT), "speed": 2.5}
    assert flights.append([later]).count == COUNT + 1
    flights.add_column("call sign", pa.string())
    assert flights.schema.names[-2:] == ["speed", "call sign"]
    assert either.stream("flights").scan(columns=["call sign"]).read_all().num_rows == COUNT + 1


def test_a_tail_goes_on_where_it_stopped(flights: Any) -> None:
    with flights.tail(0, follow=False, columns=["seen"]) as tail:
        assert sum(len(batch) for batch in tail) == COUNT
        position = tail.position
    assert position == "1"
    flights.append([event(COUNT), event(COUNT + 1)])
    with flights.tail(position, where=f"seen > {2**62 + COUNT}") as tail:
        assert next(tail).column("seen").to_pylist() == [2**62 + COUNT + 1]
    waiting = flights.tail("now")
    found: list[pa.RecordBatch] = []
    thread = threading.Thread(target=lambda: found.extend(waiting))
    thread.start()
    flights.append([event(COUNT + 2)])
    while not found:
        thread.join(0.01)
    waiting.close()  # wakes the thread
    thread.join()
    with pytest.raises(chronicle.SnapshotExpired):
        flights.tail(999)


def test_live_queries(either: Any, flights: Any) -> None:
    text = "SELECT time, icao24, altitude FROM flights WHERE altitude > 9000"
    query = either.create_live("high", text, idle="0 seconds", options={"retention": "90 days"})
    either.run_live(timeout=PATIENCE_S)
    assert either.live_queries() == ["high"]
    assert (query.sql, query.sink) == (text, "high")
    status = either.live("high").status()
    assert (status["rows"], status["lag_events"]) == (9, 0)
    assert isinstance(status["watermark"], dt.datetime)
    assert sum(len(batch) for batch in query.rows()) == 9
    assert [len(b) for b in query.rows(after=7)] == [2]
    net = query.net()
    assert net.column_names[:3] == ["_time", "_id", "_rev"]
    assert net.num_rows == 9
    assert query.net(start=EVENTS[95]["time"], end="2018-08-01T05:01:38").num_rows == 3
    flights.append([{**event(50), "altitude": 9999.0}])
    assert query.verify() == 0
    query.pause()
    assert query.status()["state"] == "paused"
    query.resume()
    query.refresh(start=MORNING, end=MORNING + dt.timedelta(hours=1))
    query.drop()
    assert either.live_queries() == []
    with pytest.raises(chronicle.StreamNotFound):
        either.live("high")
    with pytest.raises(chronicle.InvalidArgument, match="caught up"):
        either.run_live(until="tomorrow")


def test_rollups(either: Any, flights: Any) -> None:
    text = (
        "SELECT window_start, count(*) AS n, max(altitude) AS top "
        "FROM TUMBLE(flights, time, INTERVAL '10' SECOND) GROUP BY window_start, window_end"
    )
    query = either.create_rollup("tens", text, idle="0 seconds", options={"retention": "90 days"})
    either.run_live(timeout=PATIENCE_S)
    assert either.rollups() == either.live_queries() == ["tens"]
    assert (query.sql, query.sink) == (text, "tens")
    assert either.rollup("tens").net().num_rows == query.status()["rows"] > 3
    asked = text.replace("SELECT", "SELECT /*+ rollups(always) */").replace("'10'", "'20'")
    assert "rollup: tens" in str(either.explain(asked))
    with pytest.raises(chronicle.StreamNotFound, match="there are: tens"):
        either.rollup("twenties")
    query.drop()
    assert either.rollups() == []


def test_what_a_rollup_over_rest_has_not(remote: Any) -> None:
    body = {"name": "r", "sql": "SELECT 1", "rollup": True, "late": "ignore"}
    with pytest.raises(chronicle.InvalidArgument, match="a roll-up has no late"):
        remote._transport.json(Call("POST", "/v1/live", body=body))


# ------------------------------------------------------------------- of the client alone


def test_positions(served: Any, remote: RemoteDatabase) -> None:
    del served
    stream = remote.create_stream("flights", FLIGHTS, time="time")
    stream.append(EVENTS[10:])
    first = stream.keep_position()
    assert first is not None
    assert stream.keep_position(after=first) is None
    stream.append(EVENTS[:10])
    second = stream.keep_position(after=first)
    assert second is not None
    assert stream.changes(first, second).read_all().to_pylist() == EVENTS[:10]
    assert stream.changes(None, second, ["seen"], end=EVENTS[20]["time"]).read_all().num_rows == 20
    stream.drop_position(first)
    with pytest.raises(chronicle.SnapshotExpired):
        stream.changes(first, second)


def test_a_key_makes_an_append_repeatable(served: Any, remote: RemoteDatabase) -> None:
    del served
    stream = remote.create_stream("flights", FLIGHTS, time="time")
    first = stream.append(EVENTS, idempotency_key="load 1")
    assert stream.append(EVENTS, idempotency_key="load 1") == first
    assert stream.count == COUNT
    with pytest.raises(chronicle.InvalidArgument, match="another request"):
        stream.append(EVENTS[1:], idempotency_key="load 1")


def test_a_result_that_is_left_ends_its_query(served: Any, remote: RemoteDatabase) -> None:
    running = served.app.state.server.running
    result = remote.sql("SELECT a.range AS x FROM range(1000000) a, range(1000) b")
    batches = result.batches()  # held: an iterator that is let go of closes its result
    next(batches)
    assert len(running) == 1
    result.close()
    wait_until(lambda: not len(running))


def test_a_closed_database_says_so(served: Any) -> None:
    remote = chronicle.connect(served.url)
    assert remote.streams() == []
    remote.close()
    remote.close()
    with pytest.raises(chronicle.StoreClosed, match="connect again"):
        remote.streams()


def test_connections_are_kept_and_shared_by_threads(served: Any, remote: RemoteDatabase) -> None:
    for _ in range(5):
        remote.sql("SELECT 1").fetchall()
    assert served.connections == 1
    threads = [threading.Thread(target=remote.streams) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert served.connections <= 8


def test_an_expression_of_arrow_stays_here(remote: RemoteDatabase) -> None:
    stream = remote.create_stream("flights", FLIGHTS, time="time")
    with pytest.raises(chronicle.InvalidArgument, match="SQL predicate"):
        stream.scan(filter=pc.field("seen") > 1)  # type: ignore[arg-type]


def test_open_says_where_servers_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for address in ("http://127.0.0.1:8000", "https://example.org/x", "s3://bucket/store"):
        with pytest.raises(chronicle.InvalidArgument, match="a store is a directory"):
            chronicle.open(address)
    with pytest.raises(chronicle.InvalidArgument, match=r"chronicle\.connect\(url\)"):
        chronicle.open("http://127.0.0.1:8000")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(chronicle.InvalidArgument, match="http://host:port"):
        chronicle.connect("localhost:8000")


EMBEDDED_ONLY = {
    # what lies beside the server, or belongs to the process that has the store open
    Database: {
        "path", "mode", "backup", "check",
        "ingest", "register", "unregister",  # tables of the program, and files beside it
        "move",  # a job of the server
    },
    Stream: {"snapshot", "flush", "seal", "compact"},
    LiveHandle: set(),
}  # fmt: skip
REMOTE_ONLY = {
    Database: {
        "url", "start_job", "job", "jobs", "backups",
        "create_token", "tokens", "rotate_token", "revoke_token", "revoke_all_tokens",
    },
    Stream: {"keep_position", "drop_position", "changes"},
    LiveHandle: set(),
}  # fmt: skip
OPTIONS_EMBEDDED_ONLY = {"cancellation"}
OPTIONS_REMOTE_ONLY = {"idempotency_key"}


def public(kind: type) -> set[str]:
    named = {name for base in kind.__mro__ for name in vars(base) if base is not object}
    return {name for name in named if not name.startswith("_")}


@pytest.mark.parametrize(
    ("embedded", "remote", "unblocked"),
    [
        (Database, RemoteDatabase, AsyncDatabase),
        (Stream, RemoteStream, AsyncStream),
        (LiveHandle, RemoteLive, AsyncLive),
    ],
)
def test_the_faces_have_the_same_methods(embedded: type, remote: type, unblocked: type) -> None:
    attributes = {"name", "sql", "sink"} if embedded is LiveHandle else set()
    wanted = (public(embedded) - EMBEDDED_ONLY[embedded]) | REMOTE_ONLY[embedded]
    assert public(remote) | attributes == wanted | attributes
    assert public(unblocked) == public(remote)
    for name in sorted(wanted - REMOTE_ONLY[embedded] - attributes):
        method = getattr(embedded, name)
        if not inspect.isfunction(method):
            continue
        here = inspect.signature(method).parameters
        for kind in (remote, unblocked):
            there = inspect.signature(getattr(kind, name)).parameters
            assert (
                list(here.keys() - OPTIONS_EMBEDDED_ONLY)
                == list(there.keys() - OPTIONS_REMOTE_ONLY)
                or set(here) - OPTIONS_EMBEDDED_ONLY == set(there) - OPTIONS_REMOTE_ONLY
            ), name
            for each in set(here) & set(there) - {"self"}:
                assert here[each].default == there[each].default, (name, each)


@pytest.mark.parametrize(
    ("remote", "unblocked"), [(RemoteDatabase, AsyncDatabase), (RemoteJob, AsyncJob)]
)
def test_what_only_a_server_has_is_in_both_clients(remote: type, unblocked: type) -> None:
    own = public(remote) - public(Database)
    assert own == public(unblocked) - public(Database)
    for name in own:
        method = getattr(remote, name)
        if inspect.isfunction(method):
            here, there = map(inspect.signature, (method, getattr(unblocked, name)))
            assert here.parameters == there.parameters


def test_columns_change_and_views_go_along(remote: RemoteDatabase) -> None:
    remote.sql("CREATE STREAM w (t BIGINT, a INTEGER) TIMESTAMP BY t")
    stream = remote.stream("w")
    stream.append([{"t": 1, "a": 1}])
    stream.add_column("n", pa.int32(), nullable=False, default=7)
    stream.add_column("o", pa.string(), default="it's")
    stream.widen_column("a", pa.float64())
    stream.append([{"t": 2, "a": 0.5}, {"t": 3, "n": 8}])
    assert stream.scan().read_all().to_pylist() == [
        {"t": 1, "a": 1.0, "n": 7, "o": "it's"},
        {"t": 2, "a": 0.5, "n": 7, "o": "it's"},
        {"t": 3, "a": None, "n": 8, "o": "it's"},
    ]
    remote.sql("CREATE VIEW v AS SELECT t, n FROM w WHERE n > 7")
    assert remote.sql("SELECT * FROM v").fetchall() == [(3, 8)]
    with pytest.raises(chronicle.ChronicleError, match="read by the views v"):
        remote.drop_stream("w")
    remote.drop_stream("w", cascade=True)
    assert "w" not in remote.streams()
    assert remote.sql("SHOW VIEWS").fetchall() == []
    with pytest.raises(chronicle.errors.StreamNotFound):
        remote.drop_stream("w", cascade=True)
