"""Flight SQL: who has access, what hostile clients get, how everything ends."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

grpc = pytest.importorskip("grpc", reason="the extra flight is not installed")

import chronicle  # noqa: E402
from chronicle.errors import InvalidArgument  # noqa: E402
from chronicle.server import create_token, load_settings, serve  # noqa: E402
from chronicle.server.access.tokens import INCLUDED, SCOPES  # noqa: E402
from chronicle.server.flight.calls import (  # noqa: E402
    command_of,
    made,
    packed,
    parse,
    written,
)
from chronicle.tests.patience import PATIENCE_S, wait_until  # noqa: E402

from .test_flight_sql import fill  # noqa: E402
from .test_server_process import ENDLESS, Process, start  # noqa: E402, F401

PREFIX = "/arrow.flight.protocol.FlightService/"
METHODS = (
    *("Handshake", "GetFlightInfo", "PollFlightInfo", "GetSchema", "DoGet", "DoPut"),
    *("DoAction", "ListActions", "ListFlights", "DoExchange"),
)
PAGE = (Path(chronicle.__file__).parent / "docs" / "server.md").read_text(encoding="utf-8")
SMALL = pa.table({"t": pa.array([0], pa.timestamp("us")), "k": ["a"], "x": [1.0]})


class Raw:
    """A client that sends whatever bytes it is given."""

    def __init__(self, port: int, authorization: str | None = None, **options: int) -> None:
        given = [(f"grpc.{name}", value) for name, value in options.items()]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", given)
        self.metadata = [] if authorization is None else [("authorization", authorization)]

    def begin(self, method: str, *messages: bytes) -> Any:
        call = self.channel.stream_stream(PREFIX + method)
        return call(iter(messages), metadata=self.metadata, timeout=PATIENCE_S)

    def ask(self, method: str, *messages: bytes) -> list[bytes]:
        return list(self.begin(method, *messages))

    def code(self, method: str, *messages: bytes) -> str:
        call = self.begin(method, *messages)
        with contextlib.suppress(grpc.RpcError):
            for _ in call:
                pass
        assert "Traceback" not in str(call.details()), call.details()
        return str(call.code().name)

    def info(self, text: str) -> Any:
        (answer,) = self.ask("GetFlightInfo", described("CommandStatementQuery", query=text))
        return parse("FlightInfo", answer)

    def rows(self, info: Any) -> Any:
        return self.begin("DoGet", info.endpoint[0].ticket.SerializeToString())


def described(name: str, **fields: Any) -> bytes:
    command = packed(name, **fields)
    return bytes(made("FlightDescriptor", type=2, cmd=command).SerializeToString())


def action(kind: str, body: bytes) -> bytes:
    return bytes(made("Action", type=kind, body=body).SerializeToString())


def put(rows: pa.Table | None, name: str, /, **fields: Any) -> list[bytes]:
    """The messages of a DoPut."""
    descriptor = made("FlightDescriptor", type=2, cmd=packed(name, **fields))
    if rows is None:
        return [made("FlightData", flight_descriptor=descriptor).SerializeToString()]
    found = [parse("FlightData", m) for m in written(rows.schema, iter(rows.to_batches()))]
    found[0].flight_descriptor.CopyFrom(descriptor)
    return [message.SerializeToString() for message in found]


def ingest(stream: str, **more: Any) -> list[bytes]:
    options = made("TableDefinitionOptions", if_not_exist=2, if_exists=2)
    given = {"table_definition_options": options, **more}
    return put(SMALL, "CommandStatementIngest", table=stream, **given)


@pytest.fixture
def raw(serve_app: Callable[..., Any]) -> Iterator[Callable[..., Raw]]:
    """Serve a database, and make clients of its Flight port."""
    with contextlib.ExitStack() as stack:

        def make(served: Any, authorization: str | None = None, **options: int) -> Raw:
            found = Raw(served.app.state.flight.port, authorization, **options)
            stack.callback(found.channel.close)
            return found

        yield make


@pytest.fixture
def served(database: Any, serve_app: Callable[..., Any]) -> Callable[..., Any]:
    def make(**settings: Any) -> Any:
        return serve_app(database, flight_port=0, **{"isolation": "none", **settings})

    return make


# ----------------------------------------------------------------------------- who may what


EXAMPLES: dict[str, Callable[[], tuple[str, list[bytes]]]] = {
    "CommandStatementQuery": lambda: (
        "GetFlightInfo", [described("CommandStatementQuery", query="SELECT x FROM flights")]),
    "CommandStatementUpdate": lambda: (
        "DoPut", put(None, "CommandStatementUpdate", query="INSERT INTO flights VALUES (NULL)")),
    "CommandStatementIngest": lambda: ("DoPut", ingest("flights")),
    "CreatePreparedStatement": lambda: (
        "DoAction", [action("CreatePreparedStatement", packed(
            "ActionCreatePreparedStatementRequest", query="SELECT x FROM flights"))]),
    "ClosePreparedStatement": lambda: (
        "DoAction", [action("ClosePreparedStatement", packed(
            "ActionClosePreparedStatementRequest", prepared_statement_handle=b"none"))]),
    "CancelFlightInfo": lambda: (
        "DoAction", [action("CancelFlightInfo", b"")]),
    "ListActions": lambda: ("ListActions", [b""]),
    **{f"CommandGet{name}": lambda name=name: ("GetFlightInfo", [described(f"CommandGet{name}")])
       for name in ("Catalogs", "DbSchemas", "Tables", "TableTypes", "PrimaryKeys", "ExportedKeys",
                    "ImportedKeys", "CrossReference", "SqlInfo", "XdbcTypeInfo")},
}  # fmt: skip
NEEDS = {"any": SCOPES, "by statement": None}


def rows_of_the_manual() -> dict[str, str]:
    section = PAGE[PAGE.index("## Flight SQL") :].partition("\n## ")[0]
    found = {}
    for names, scope in re.findall(r"^\| (`.*`) \|.*\| ([^|]+) \|$", section, re.M):
        found |= dict.fromkeys(re.findall(r"`(\w+)`", names), scope.strip().strip("`"))
    return found


def test_each_command_lets_in_the_scopes_of_the_manual(
    database: Any, served: Any, raw: Any
) -> None:
    fill(database, 10)
    listed = rows_of_the_manual()
    assert set(listed) == set(EXAMPLES)
    secrets = {scope: create_token(database.path, scope, [scope])[1] for scope in SCOPES}
    api = served()
    wrong = []
    assert raw(api).code("ListActions", b"") == "UNAUTHENTICATED"
    assert raw(api, "Bearer chr_unknown").code("ListActions", b"") == "UNAUTHENTICATED"
    for name, example in EXAMPLES.items():
        method, messages = example()
        needs = listed[name]
        statement = "write" if name == "CommandStatementUpdate" else "read"
        wanted = SCOPES if needs == "any" else [statement if needs == "by statement" else needs]
        for scope in SCOPES:
            lets = any(each in INCLUDED[scope] for each in wanted)
            found = raw(api, f"Bearer {secrets[scope]}").code(method, *messages)
            if (found == "PERMISSION_DENIED") == lets or found in ("UNKNOWN", "INTERNAL"):
                wrong.append(f"{name} with {scope}: {found}")
    assert not wrong, "\n".join(wrong)
    lines = (Path(database.path) / "server" / "audit.log").read_text().splitlines()
    refused = [json.loads(line) for line in lines if '"status":403' in line]
    assert {line["path"] for line in refused} >= {PREFIX + "GetFlightInfo", PREFIX + "DoPut"}
    assert {line["client"] for line in refused} == {"127.0.0.1"}


def test_a_token_sees_its_own_streams(database: Any, served: Any, raw: Any) -> None:
    fill(database, 10)
    database.sql("CREATE STREAM secret (t BIGINT) TIMESTAMP BY t")
    database.sql("CREATE VIEW flown AS SELECT t FROM flights")
    database.sql("CREATE VIEW secretly AS SELECT t AS hidden FROM flights")
    _, secret = create_token(database.path, "some", ["read", "write"], ["fl*"])
    client = raw(served(), f"Bearer {secret}")
    ticket = made("Ticket", ticket=packed("CommandGetTables", include_schema=True))
    told = b"".join(client.ask("DoGet", ticket.SerializeToString()))
    assert b"flights" in told
    assert b"flown" in told
    assert b"secret" not in told
    assert b"hidden" not in told
    for text in ("SELECT * FROM secret", "SELECT * FROM flghts"):
        with pytest.raises(grpc.RpcError) as caught:
            client.info(text)
        assert caught.value.code().name == "INVALID_ARGUMENT"
        assert ("secret" in caught.value.details()) == ("secret" in text)
    assert client.code("DoPut", *ingest("secret")) == "PERMISSION_DENIED"


def test_a_password_is_a_token(database: Any, served: Any, raw: Any) -> None:
    fill(database, 10)
    _, secret = create_token(database.path, "some", ["read"])
    api = served()

    def basic(password: str) -> str:
        return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode().rstrip("=")

    for password in (secret, "chr_wrong", ""):
        client = raw(api, basic(password))
        code = client.code("Handshake", b"")
        assert code == ("OK" if password == secret else "UNAUTHENTICATED")
        assert client.code("ListActions", b"") == "UNAUTHENTICATED", "it is for the handshake"
    headers = raw(api, basic(secret)).begin("Handshake", b"").initial_metadata()
    assert ("authorization", f"Bearer {secret}") in [tuple(pair) for pair in headers]
    assert raw(api, "Basic ???").code("Handshake", b"") == "UNAUTHENTICATED"


def test_guesses_are_counted(database: Any, served: Any, raw: Any) -> None:
    create_token(database.path, "some", ["read"])
    api = served(max_failed_logins_per_minute=3)
    codes = [raw(api, f"Bearer chr_{n}").code("ListActions", b"") for n in range(5)]
    assert codes == ["UNAUTHENTICATED"] * 3 + ["RESOURCE_EXHAUSTED"] * 2


# ---------------------------------------------------------------------------------- tickets


def test_tickets(database: Any, served: Any, raw: Any) -> None:
    fill(database)
    tokens = [create_token(database.path, name, ["read"])[1] for name in ("one", "two")]
    api = served(client_timeout_ms=60_000, max_client_queries=2)
    one, two = (raw(api, f"Bearer {secret}") for secret in tokens)
    info = one.info("SELECT * FROM flights")
    with pytest.raises(grpc.RpcError, match="no query waits under this ticket"):
        list(two.rows(info))
    assert len(list(one.rows(info))) > 1
    with pytest.raises(grpc.RpcError, match="no query waits under this ticket"):
        list(one.rows(info))
    # Nobody comes for these: they end, and meanwhile there is room for no more
    infos = [one.info("SELECT * FROM flights") for _ in range(2)]
    with pytest.raises(grpc.RpcError, match="wait for DoGet"):
        one.info("SELECT * FROM flights")
    assert len(list(two.rows(two.info("SELECT * FROM flights")))) > 1
    assert len(api.app.state.flight._service.statements._begun) == 2
    api.pass_time(61)
    wait_until(lambda: not api.app.state.flight._service.statements._begun)
    with pytest.raises(grpc.RpcError, match="no query waits under this ticket"):
        list(one.rows(infos[0]))


def test_queries_are_listed_cancelled_and_logged(database: Any, served: Any, raw: Any) -> None:
    fill(database)
    api = served()
    client = raw(api)

    def running() -> list[Any]:
        return list(api.get("/v1/queries").json()["queries"])

    for kind in ("CancelFlightInfo", "CancelQuery", "rest"):
        info = client.info(ENDLESS)
        rows = client.rows(info)
        next(rows)
        (listed,) = running()
        assert listed["text"] == ENDLESS
        if kind == "rest":
            assert api.delete(f"/v1/queries/{listed['id']}").status_code == 204
        else:
            body = (
                made("CancelFlightInfoRequest", info=info).SerializeToString()
                if kind == "CancelFlightInfo"
                else packed("ActionCancelQueryRequest", info=info.SerializeToString())
            )
            client.ask("DoAction", action(kind, body))
            assert client.code("DoAction", action(kind, body)) == "NOT_FOUND"
        with pytest.raises(grpc.RpcError) as caught:
            list(rows)
        assert caught.value.code().name == "CANCELLED", caught.value
        wait_until(lambda: running() == [])
    asked = {"sql": "SELECT outcome, count(*) AS n FROM chronicle.query_log GROUP BY ALL"}
    told = api.post("/v1/query", json=asked).json()["rows"]
    assert {"outcome": "cancelled", "n": 3} in told
    metrics = api.get("/metrics").text
    assert f'route="{PREFIX}DoGet"' in metrics
    assert 'chronicle_queries_total{kind="query",outcome="cancelled"} 3.0' in metrics


def test_a_client_that_reads_no_more_ends_its_query(database: Any, served: Any, raw: Any) -> None:
    api = served(client_timeout_ms=60_000, max_concurrent_queries=2)
    client = raw(api)
    rows = client.rows(client.info(ENDLESS))
    next(rows)  # and no more
    server = api.app.state.server

    def ended() -> bool:
        api.pass_time(61)
        return server.queries.running == 0 and not len(server.running)

    assert server.queries.running == 1
    wait_until(ended)
    assert api.get("/healthz").status_code == 200
    rows.cancel()
    # Before the rows, too
    client.info(ENDLESS)
    assert server.queries.running == 1
    wait_until(ended)


def test_a_client_that_hangs_up_ends_its_query(database: Any, served: Any, raw: Any) -> None:
    api = served()
    server = api.app.state.server
    client = raw(api)
    slow = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"

    def being_sent() -> Any:
        rows = client.rows(client.info(ENDLESS))
        next(rows)  # a ticket that nobody took yet would wait for its time
        return rows

    for call in (
        being_sent,
        lambda: client.begin("GetFlightInfo", described("CommandStatementQuery", query=slow)),
        lambda: client.begin("DoPut", *put(None, "CommandStatementUpdate", query=slow)),
    ):
        asked = call()
        wait_until(lambda: len(server.running) == 1)
        asked.cancel()
        wait_until(lambda: not len(server.running) and server.queries.running == 0)


KILLED = """
import sys
import grpc
call = grpc.insecure_channel(sys.argv[1]).stream_stream(sys.argv[2])
rows = call(iter([bytes.fromhex(sys.argv[3])]))
next(rows)
print("reads", flush=True)
for row in rows:
    pass
"""


def test_a_client_that_is_killed_ends_its_query(database: Any, served: Any, raw: Any) -> None:
    api = served()
    server = api.app.state.server
    ticket = raw(api).info(ENDLESS).endpoint[0].ticket.SerializeToString()
    asked = (f"127.0.0.1:{api.app.state.flight.port}", PREFIX + "DoGet", ticket.hex())
    child = subprocess.Popen([sys.executable, "-c", KILLED, *asked], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"reads\n"
    assert len(server.running) == 1
    child.kill()
    child.wait()
    child.stdout.close()
    wait_until(lambda: not len(server.running) and server.queries.running == 0)


# ------------------------------------------------------------------------- hostile messages


def seeds() -> list[tuple[str, list[bytes]]]:
    found = [example() for example in EXAMPLES.values()]
    query = made("Ticket", ticket=packed("TicketStatementQuery", statement_handle=b"x" * 16))
    found.append(("DoGet", [query.SerializeToString()]))
    found.append(("GetSchema", [described("CommandStatementQuery", query="SELECT 1 AS a")]))
    prepared = {"prepared_statement_handle": b"x" * 16}
    found.append(("DoPut", put(SMALL, "CommandPreparedStatementQuery", **prepared)))
    found.append(("DoPut", put(SMALL, "CommandPreparedStatementUpdate", **prepared)))
    return found


def broken(chance: random.Random, message: bytes) -> bytes:
    data = bytearray(message or b"\x0a\x00")
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(data))
        way = chance.randrange(4)
        if way == 0:
            data[place] = chance.randrange(256)
        elif way == 1:
            del data[place:]
            data += bytes([chance.randrange(256)])
        elif way == 2:
            data[place:place] = chance.randbytes(chance.randrange(1, 9))
        else:
            data[place : place + 4] = b"\xff\xff\xff\x7f"
    return bytes(data)


NEVER = {"UNKNOWN", "INTERNAL", "DEADLINE_EXCEEDED", "UNAVAILABLE"}
"""What would be a fault of the server."""


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_hostile_messages_are_refused_and_nothing_else_happens(
    database: Any, served: Any, raw: Any, isolation: str
) -> None:
    fill(database, 10)
    api = served(isolation=isolation)
    client = raw(api)
    chance = random.Random(7)
    found: set[str] = set()
    count = database.stream("flights").count
    for _ in range(250 if isolation == "none" else 60):
        method, messages = chance.choice(seeds())
        way = chance.randrange(4)
        if way == 0:
            messages = [chance.randbytes(chance.randrange(40)) for _ in messages]
        elif way == 1:
            method = chance.choice(METHODS)
        sent = [broken(chance, m) if chance.random() < 0.7 else m for m in messages]
        code = client.code(method, *sent[: chance.randrange(len(sent) + 1)])
        found.add(code)
        assert found.isdisjoint(NEVER), (method, sent)
    assert found >= {"INVALID_ARGUMENT", "OK"}
    assert raw(api).code("DoAction", action("BeginTransaction", b"")) == "UNIMPLEMENTED"
    stored = database.stream("flights").count
    assert stored >= count, "some of them were whole"
    assert len(list(client.rows(client.info("SELECT * FROM flights")))) == 2
    api.app.state.flight._service.prepared.close_all()
    assert api.app.state.server.uploads.used == 0
    assert database.check().ok


def test_headers_and_sizes_have_bounds(database: Any, served: Any, raw: Any) -> None:
    fill(database, 10)
    api = served(max_body_bytes=1 << 20, max_part_bytes=1 << 20)
    client = raw(api)
    assert client.code("DoGet", bytes(2 << 20)) == "RESOURCE_EXHAUSTED"
    large = pa.table({"t": pa.array([0] * 40_000, pa.timestamp("us")), "k": ["k" * 9] * 40_000,
                      "x": [0.5] * 40_000})  # fmt: skip
    options = made("TableDefinitionOptions", if_not_exist=2, if_exists=2)
    more = {"table": "flights", "table_definition_options": options}
    messages = put(large, "CommandStatementIngest", **more)
    assert client.code("DoPut", *messages) == "RESOURCE_EXHAUSTED"
    assert database.stream("flights").count == 10
    twice = raw(api)
    twice.metadata = [("authorization", "Bearer a"), ("authorization", "Bearer b")]
    assert twice.code("ListActions", b"") == "INVALID_ARGUMENT"


def test_a_body_that_breaks_off_stores_nothing(database: Any, served: Any, raw: Any) -> None:
    fill(database, 10)
    api = served(client_timeout_ms=60_000)
    client = raw(api)
    messages = ingest("flights")
    stalls, going = threading.Event(), threading.Event()

    def slowly() -> Iterator[bytes]:
        yield from messages
        stalls.set()
        going.wait(PATIENCE_S)

    call = client.channel.stream_stream(PREFIX + "DoPut")(slowly())
    assert stalls.wait(PATIENCE_S)
    wait_until(lambda: api.pass_time(61) or call.done())
    with pytest.raises(grpc.RpcError, match="too slowly"):
        list(call)
    going.set()
    cut = parse("FlightData", messages[-1])
    cut.data_body = cut.data_body[:-8]
    assert client.code("DoPut", *messages[:-1], cut.SerializeToString()) == "INVALID_ARGUMENT"
    assert database.stream("flights").count == 10


def test_messages_are_those_of_the_protocol() -> None:
    """As another implementation of it writes and reads them."""
    flight = pytest.importorskip("pyarrow.flight")
    info = made(
        "FlightInfo", schema=pa.schema([("a", pa.int64())]).serialize().to_pybytes(),
        flight_descriptor=made("FlightDescriptor", type=2, cmd=b"x"), total_records=-1,
        endpoint=[made("FlightEndpoint", ticket=made("Ticket", ticket=b"t"))],
    )  # fmt: skip
    read = flight.FlightInfo.deserialize(info.SerializeToString())
    assert (read.descriptor.command, read.endpoints[0].ticket.ticket) == (b"x", b"t")
    assert (read.schema.names, read.total_records) == (["a"], -1)
    theirs = flight.Action("CancelQuery", b"body").serialize()
    assert (parse("Action", theirs).type, parse("Action", theirs).body) == ("CancelQuery", b"body")
    name, command = command_of(packed("CommandStatementIngest", table="s", options={"time": "t"}))
    assert (name, command.table, dict(command.options)) == (
        "CommandStatementIngest",
        "s",
        {"time": "t"},
    )


# ------------------------------------------------------------------------------ the process


def port_of(server: Process) -> int:
    line = next(line for line in server.log if "Flight SQL listens" in line)
    return int(line.rpartition(":")[2])


def test_a_server_stops_with_its_second_door(start: Callable[..., Process]) -> None:  # noqa: F811
    server = start(CHRONICLE_FLIGHT_PORT="0", CHRONICLE_DRAIN_TIMEOUT_MS="1000")
    port = port_of(server)
    client = Raw(port)
    with client.channel:
        assert len(list(client.rows(client.info("SELECT 1 AS a")))) == 2
        rows = client.rows(client.info(ENDLESS))
        next(rows)
        server.http.close()
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.RpcError) as caught:
            list(rows)
        assert caught.value.code().name in ("CANCELLED", "UNAVAILABLE"), caught.value
        assert server.wait() == 0, "\n".join(server.log)
    assert "is closed" in server.log[-1]


def test_a_port_that_is_taken_is_one_clear_error(
    database: Any, tmp_path: Path, served: Any
) -> None:
    port = served().app.state.flight.port
    settings = load_settings(store=tmp_path / "other", port=0, flight_port=port)
    with pytest.raises(InvalidArgument, match="--flight-port"):
        serve(settings)
