"""Flight SQL, as the drivers of ADBC speak it: queries, changes, metadata, loads."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("grpc", reason="the extra flight is not installed")
flight_sql = pytest.importorskip("adbc_driver_flightsql", reason="no driver of ADBC is installed")

import adbc_driver_flightsql.dbapi as adbc  # noqa: E402
import adbc_driver_manager as manager  # noqa: E402
import trustme  # noqa: E402

import chronicle  # noqa: E402
from chronicle.server import create_token  # noqa: E402

from .conftest import HOUR_MS  # noqa: E402
from .test_tls import write_pair  # noqa: E402

START = dt.datetime(2026, 3, 1)


def fill(database: Any, count: int = 1000) -> Any:
    database.sql("CREATE STREAM flights (t TIMESTAMP, k VARCHAR, x DOUBLE) TIMESTAMP BY t")
    stream = database.stream("flights")
    stream.append(
        pa.table(
            {
                "t": [START + dt.timedelta(seconds=n) for n in range(count)],
                "k": [f"k{n % 3}" for n in range(count)],
                "x": [n / 2 for n in range(count)],
            }
        )
    )
    return stream


@pytest.fixture
def connect(serve_app: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Serve a database, and connect a driver to it."""
    opened: list[Any] = []

    def make(database: Any, secret: str | None = None, api: Any = None, **settings: Any) -> Any:
        chosen = {"flight_port": 0, "isolation": "none", **settings}
        served = api or serve_app(database, **chosen)
        port = served.app.state.flight.port
        more = (
            {} if secret is None else {"adbc.flight.sql.authorization_header": f"Bearer {secret}"}
        )
        opened.append(adbc.connect(f"grpc://127.0.0.1:{port}", more, autocommit=True))
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()


def test_a_query(database: Any, connect: Any) -> None:
    fill(database)
    with connect(database).cursor() as cursor:
        cursor.execute("SELECT k, count(*) AS n, max(x) AS top FROM flights GROUP BY k ORDER BY k")
        assert cursor.fetchall() == [("k0", 334, 499.5), ("k1", 333, 498.5), ("k2", 333, 499.0)]
        cursor.execute("SELECT t, k, x FROM flights")
        table = cursor.fetch_arrow_table()
        assert table.equals(database.sql("SELECT t, k, x FROM flights").arrow())
        cursor.execute("SELECT t, k, x FROM flights WHERE k = 'none'")
        assert cursor.fetch_arrow_table().equals(table[:0])


def test_statements_that_change(database: Any, connect: Any) -> None:
    with connect(database).cursor() as cursor:
        cursor.execute("CREATE STREAM s (t BIGINT, x DOUBLE) TIMESTAMP BY t")
        assert cursor.fetchall() == [("created stream s",)]
        cursor.adbc_statement.set_sql_query("INSERT INTO s VALUES (1, 0.5), (2, 1.5)")
        assert cursor.adbc_statement.execute_update() == 2
        cursor.adbc_statement.set_sql_query("DELETE FROM s WHERE t = 1")
        assert cursor.adbc_statement.execute_update() == 1
        cursor.adbc_statement.set_sql_query("SELECT * FROM s")
        assert cursor.adbc_statement.execute_update() == -1
    assert database.sql("SELECT t, x FROM s").fetchall() == [(2, 1.5)]


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_parameters(database: Any, connect: Any, isolation: str) -> None:
    fill(database)
    with connect(database, isolation=isolation).cursor() as cursor:
        text = "SELECT count(*) AS n FROM flights WHERE k = ? AND x >= ?"
        for key, low, n in (("k0", 100.0, 267), ("k1", 100, 266), (None, 1.0, 0)):
            cursor.execute(text, (key, low))
            assert cursor.fetchone() == (n,)
        cursor.execute(
            "SELECT count(*) AS n FROM flights WHERE t < ?", (START + dt.timedelta(minutes=1),)
        )
        assert cursor.fetchone() == (60,)
        named = pa.record_batch({"top": [5.0], "low": [2.0]})
        cursor.execute("SELECT count(*) AS n FROM flights WHERE x >= $low AND x < $top", named)
        assert cursor.fetchone() == (6,)
        with pytest.raises(manager.ProgrammingError, match="no value was given for the parameter"):
            cursor.execute(text, ("k0",))
        with pytest.raises(manager.ProgrammingError, match="a query takes one row of parameters"):
            cursor.execute(text, pa.record_batch({"a": ["k0", "k1"], "b": [1.0, 2.0]}))

        cursor.executemany(
            "INSERT INTO flights (t, k, x) VALUES (?, ?, ?)",
            [(START + dt.timedelta(days=n), f"new{n}", None) for n in range(1, 6)],
        )
        version = database.stream("flights").stats()["events"]
        assert version == 1005
        cursor.executemany("DELETE FROM flights WHERE k = ?", [("new1",)])
        assert database.stream("flights").count == 1004
        with pytest.raises(manager.ProgrammingError, match="several rows of parameters"):
            cursor.executemany("DELETE FROM flights WHERE k = ?", [("new2",), ("new3",)])
        cursor.executemany("INSERT INTO flights (t, k, x) VALUES (?, ?, ?)", [])
        assert database.stream("flights").count == 1004


def test_prepared_statements(database: Any, connect: Any) -> None:
    fill(database)
    with connect(database).cursor() as cursor:
        statement = cursor.adbc_statement
        statement.set_sql_query("SELECT k, x FROM flights WHERE x > ? AND k = ?")
        statement.prepare()
        wanted = pa.schema([("1", pa.null()), ("2", pa.null())])
        assert pa.schema(statement.get_parameter_schema()).equals(wanted)
        schema = cursor.adbc_prepare("SELECT k, x FROM flights LIMIT 3")
        assert schema is None or len(schema) == 0
        assert cursor.adbc_execute_schema("SELECT k, x FROM flights").names == ["k", "x"]
        with pytest.raises(manager.ProgrammingError, match="no column"):
            cursor.adbc_prepare("SELECT nothing FROM flights")
        with pytest.raises(manager.NotSupportedError, match="did not provide schema"):
            cursor.adbc_execute_schema("DROP STREAM flights")
    assert database.streams() == ["flights"]


def test_metadata(database: Any, connect: Any) -> None:
    fill(database)
    database.sql('CREATE STREAM "f%t" (t BIGINT) TIMESTAMP BY t')
    database.sql("CREATE VIEW high AS SELECT t, x AS height FROM flights WHERE x > 5")
    connection = connect(database)
    assert connection.adbc_get_table_types() == ["SYSTEM TABLE", "TABLE", "VIEW"]
    schema = connection.adbc_get_table_schema("flights")
    assert schema.names == ["t", "k", "x"]
    assert connection.adbc_get_table_schema("high").field("height").type == pa.float64()

    def listed(**filters: Any) -> dict[Any, list[str]]:
        (catalog,) = connection.adbc_get_objects(**filters).read_all().to_pylist()
        assert catalog["catalog_name"] == "chronicle"
        return {
            (space["db_schema_name"], table["table_name"]): [
                column["column_name"] for column in table["table_columns"] or ()
            ]
            for space in catalog["catalog_db_schemas"]
            for table in space["db_schema_tables"]
        }

    tables = {("main", "f%t"): ["t"], ("main", "flights"): ["t", "k", "x"]}
    views = {("main", "high"): ["t", "height"]}
    assert listed(depth="columns", table_types_filter=["TABLE"]) == tables
    assert listed(depth="columns", table_types_filter=["VIEW"]) == views
    assert listed(depth="columns", db_schema_filter="main") == tables | views
    assert listed(depth="tables", table_name_filter="f\\%%") == {("main", "f%t"): []}
    system = listed(depth="columns", db_schema_filter="information_schema")
    assert system["information_schema", "schemata"] == ["catalog_name", "schema_name"]
    info = connection.adbc_get_info()
    assert info["vendor_name"] == "Chronicle"
    with pytest.raises(manager.NotSupportedError):
        connection.adbc_connection.set_autocommit(False)


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_events_in_bulk(database: Any, connect: Any, isolation: str) -> None:
    fill(database)
    connection = connect(database, isolation=isolation)
    more = pa.table(
        {
            "k": pa.array(["a", "b", "c"]).dictionary_encode(),
            "t": [START + dt.timedelta(days=n) for n in (3, 1, 2)],
            "x": pa.array([None, 1, 2], pa.float32()),
        }
    )
    with connection.cursor() as cursor:
        assert cursor.adbc_ingest("flights", more, mode="append") == 3
        assert database.stream("flights").count == 1003
        with pytest.raises(manager.ProgrammingError, match="there is a stream 'flights' already"):
            cursor.adbc_ingest("flights", more, mode="create")
        assert cursor.adbc_ingest("new", more, mode="create") == 3
        assert database.stream("new").time == "t"
        assert database.stream("new").scan().read_all()["k"].to_pylist() == ["b", "c", "a"]
        assert cursor.adbc_ingest("new", more, mode="create_append") == 3
        with pytest.raises(manager.NotSupportedError, match="not replaced"):
            cursor.adbc_ingest("new", more, mode="replace")
        with pytest.raises(manager.NotSupportedError, match="temporary"):
            cursor.adbc_ingest("new", more, mode="append", temporary=True)
        with connection.cursor() as other, pytest.raises(manager.Error, match="'main'"):
            other.adbc_ingest("new", more, mode="append", db_schema_name="other")
        with pytest.raises(manager.Error, match="no stream 'none'"):
            cursor.adbc_ingest("none", more, mode="append")
        wrong = more.set_column(1, "t", pa.array(["soon", "later", "never"]))
        with pytest.raises(manager.Error, match="found 'soon'"):
            cursor.adbc_ingest("flights", wrong, mode="append")
        many = [batch for n in range(40) for batch in more.to_batches()]
        reader = pa.RecordBatchReader.from_batches(more.schema, many)
        version = database.stream("flights").stats()["events"]
        assert cursor.adbc_ingest("flights", reader, mode="append") == 120
        assert database.stream("flights").count == version + 120
        database.sql("CREATE STREAM n (t BIGINT, x INTEGER) TIMESTAMP BY t")
        assert cursor.adbc_ingest("n", pa.table({"t": [5, 6], "x": [1, 2]}), mode="append") == 2
        assert database.stream("n").time_range == (5, 6)


@pytest.mark.parametrize(
    ("limit_ms", "text", "kind", "told"),
    [
        (HOUR_MS, "SELEC 1", "ProgrammingError", "line 1, column"),
        (HOUR_MS, "SELECT * FROM nothing", "ProgrammingError", "no stream"),
        (HOUR_MS, "CREATE STREAM flights (t BIGINT) TIMESTAMP BY t", "ProgrammingError", "alread"),
        (300, "SELECT sum(a.range * b.range % 7) FROM range(1000000) a, range(1000000) b",
         "OperationalError", "time"),
    ],
)  # fmt: skip
def test_errors_have_the_codes_that_drivers_know(
    database: Any, connect: Any, limit_ms: int, text: str, kind: str, told: str
) -> None:
    fill(database)
    with connect(database, query_timeout_ms=limit_ms).cursor() as cursor:
        with pytest.raises(getattr(manager, kind), match=told) as caught:
            cursor.execute(text)
        assert "Traceback" not in str(caught.value)
        assert "/" not in str(caught.value).replace("application/grpc", ""), str(caught.value)


def test_a_user_s_password_is_a_token(database: Any, serve_app: Callable[..., Any]) -> None:
    fill(database)
    _, secret = create_token(database.path, "grafana", ["read"])
    port = serve_app(database, flight_port=0, isolation="none").app.state.flight.port
    given = {"username": "anybody", "password": secret}
    with (
        adbc.connect(f"grpc://127.0.0.1:{port}", given, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT count(*) AS n FROM flights")
        assert cursor.fetchone() == (1000,)
        with pytest.raises(manager.ProgrammingError, match="needs the scope 'admin'"):
            cursor.execute("DROP STREAM flights")
    for wrong in ({"username": "a", "password": "chr_wrong"}, {}):
        with (
            pytest.raises(manager.Error, match=r"token"),
            adbc.connect(f"grpc://127.0.0.1:{port}", wrong, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT 1")


def test_certificates_are_those_of_the_server(
    database: Any, serve_app: Callable[..., Any], tmp_path: Path
) -> None:
    """A renewed one is shown to the next connection; half of one to nobody."""
    first, other = trustme.CA(), trustme.CA()
    pair = write_pair(tmp_path, first.issue_cert("127.0.0.1"))
    chosen = {"tls_cert": pair[0], "tls_key": pair[1], "flight_port": 0, "isolation": "none"}
    port = serve_app(database, **chosen).app.state.flight.port

    def asked(authority: trustme.CA) -> Any:
        trust = {
            "adbc.flight.sql.client_option.tls_root_certs": authority.cert_pem.bytes().decode()
        }
        with (
            adbc.connect(f"grpc+tls://127.0.0.1:{port}", trust, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT 1 AS a")
            return cursor.fetchone()

    assert asked(first) == (1,)
    with pytest.raises(manager.Error):
        asked(other)
    pair[1].write_bytes(b"half")
    assert asked(first) == (1,)
    write_pair(tmp_path, other.issue_cert("127.0.0.1"))
    assert asked(other) == (1,)


def test_the_example_of_the_manual_runs(database: Any, serve_app: Callable[..., Any]) -> None:
    schema = "(timestamp TIMESTAMP, icao24 VARCHAR, altitude DOUBLE)"
    database.sql(f"CREATE STREAM flights {schema} TIMESTAMP BY timestamp")
    database.sql("INSERT INTO flights VALUES ('2018-08-01 05:00:00', '4b1803', 1024.5)")
    page = (Path(chronicle.__file__).parent / "docs" / "clients.md").read_text(encoding="utf-8")
    example = next(e for e in re.findall(r"```python\n(.*?)```", page, re.S) if "adbc" in e)
    port = serve_app(database, flight_port=0, isolation="none").app.state.flight.port
    names = {"table_with_times": pa.table({"at": [START], "gear": ["down"]})}
    exec(example.replace("127.0.0.1:8001", f"127.0.0.1:{port}"), names)
    assert names["table"].to_pylist() == [{"icao24": "4b1803", "top": 1024.5}]
    assert database.stream("landings").time == "at"
