"""The DB-API 2.0, over a store and over a server, and SQLAlchemy and pandas on top of it."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import chronicle
from chronicle import dbapi, errors
from chronicle.dbapi.connection import class_of
from chronicle.server.access.tokens import create_token

T0 = dt.datetime(2018, 8, 1, 5)
CREATE = (
    "CREATE STREAM flights (t TIMESTAMP, icao24 VARCHAR, altitude DOUBLE, fuel DECIMAL(10, 2), "
    "raw BLOB, day DATE) TIMESTAMP BY t"
)
INSERT = "INSERT INTO flights (t, icao24, altitude) VALUES (?, ?, ?)"


def rows(count: int) -> list[tuple[Any, ...]]:
    return [(T0 + dt.timedelta(seconds=n), f"a{n % 3}", n * 1.5) for n in range(count)]


@pytest.fixture(params=["embedded", "remote"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "embedded":
        return str(tmp_path / "store")
    return str(request.getfixturevalue("served").url)


@pytest.fixture
def connection(where: str) -> Iterator[dbapi.Connection]:
    with dbapi.connect(where) as connected:
        yield connected


@pytest.fixture
def cursor(connection: dbapi.Connection) -> dbapi.Cursor:
    made = connection.cursor()
    made.execute(CREATE)
    return made


def test_the_module_says_what_it_is() -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 2, "qmark")
    assert issubclass(dbapi.ProgrammingError, dbapi.DatabaseError)
    assert issubclass(dbapi.InterfaceError, dbapi.Error)
    assert dbapi.Connection.DataError is dbapi.DataError
    assert dbapi.DateFromTicks(0.0).year in (1969, 1970)
    assert dbapi.Timestamp(2018, 8, 1) == dt.datetime(2018, 8, 1)
    assert dbapi.Binary(b"x") == b"x"


def test_rows_go_in_and_come_out_in_their_types(cursor: dbapi.Cursor) -> None:
    given = (T0, "a1", 1.5, Decimal("2.25"), b"\x00\xff", dt.date(2018, 8, 1))
    cursor.execute("INSERT INTO flights VALUES (?, ?, ?, ?, ?, ?)", given)
    assert (cursor.rowcount, cursor.description) == (1, None)
    cursor.execute("SELECT *, true AS yes, 7 AS n, INTERVAL '90' SECOND AS long FROM flights")
    assert cursor.fetchone() == (*given, True, 7, dt.timedelta(seconds=90))
    assert cursor.fetchone() is None
    assert cursor.description is not None
    kinds = [column[1] for column in cursor.description]
    assert [column[0] for column in cursor.description[:2]] == ["t", "icao24"]
    assert all(len(column) == 7 for column in cursor.description)
    assert kinds[0] == dbapi.DATETIME
    assert kinds[1] == dbapi.STRING
    assert kinds[2] == dbapi.NUMBER == kinds[3]
    assert kinds[4] == dbapi.BINARY
    assert kinds[5] == dbapi.DATETIME == kinds[8]
    assert kinds[6] == dbapi.NUMBER == kinds[7]
    assert dbapi.NUMBER != "VARCHAR"
    assert dbapi.ROWID != dbapi.STRING


def test_many_rows_are_one_append(connection: dbapi.Connection, cursor: dbapi.Cursor) -> None:
    cursor.executemany(INSERT, rows(500))
    assert cursor.rowcount == 500
    cursor.execute("SELECT events, version FROM chronicle.streams")
    assert cursor.fetchall() == [(500, 1)]
    with pytest.raises(dbapi.ProgrammingError, match=r"row 501|cannot take the value"):
        cursor.executemany(INSERT, [*rows(500), ("no time", "a", 1.0)])
    cursor.execute("SELECT count(*) FROM flights WHERE icao24 = ?", ["a1"])
    assert cursor.fetchall() == [(167,)]
    cursor.executemany(INSERT.replace("VALUES (?, ?, ?)", "values\n(?,?,? ) ;"), rows(2))
    assert cursor.rowcount == 2
    cursor.executemany(INSERT, [(T0, None, None), (T0, "a", 1)])
    cursor.executemany(INSERT, [])
    with pytest.raises(dbapi.ProgrammingError, match="row 2 has to be a sequence of 3 values"):
        cursor.executemany(INSERT, [(T0, "a", 1.0), (T0, "a")])


def test_many_sets_for_other_statements(cursor: dbapi.Cursor) -> None:
    cursor.executemany(INSERT, rows(9))
    cursor.executemany("DELETE FROM flights WHERE icao24 = ?", [("a1",), ("a2",), ("zz",)])
    assert cursor.rowcount == 6
    cursor.executemany("INSERT INTO flights (t, icao24) VALUES ($t, upper($k))",
                       [{"t": T0, "k": "b"}, {"t": T0, "k": "c"}])  # fmt: skip
    cursor.execute("SELECT icao24 FROM flights WHERE icao24 IN (?, ?) ORDER BY 1", ("B", "C"))
    assert cursor.fetchall() == [("B",), ("C",)]
    with pytest.raises(dbapi.ProgrammingError, match="change something"):
        cursor.executemany("SELECT ?", [(1,), (2,)])


def test_fetching(cursor: dbapi.Cursor) -> None:
    cursor.executemany(INSERT, rows(10))
    cursor.execute("SELECT altitude FROM flights")
    assert cursor.rowcount == -1
    assert cursor.fetchmany() == [(0.0,)]
    assert cursor.fetchmany(3) == [(1.5,), (3.0,), (4.5,)]
    cursor.arraysize = 2
    assert cursor.fetchmany() == [(6.0,), (7.5,)]
    assert next(cursor) == (9.0,)
    assert list(cursor) == [(10.5,), (12.0,), (13.5,)]
    assert cursor.fetchall() == []
    assert cursor.fetchmany(5) == []
    cursor.execute("SELECT 1 WHERE false")
    assert (cursor.fetchone(), cursor.fetchall()) == (None, [])
    cursor.setinputsizes([1])
    cursor.setoutputsize(5)


def test_rows_are_computed_as_they_are_fetched(cursor: dbapi.Cursor) -> None:
    endless = "SELECT a.range FROM range(1000000) a, range(1000000) b"
    cursor.execute(endless)
    assert cursor.fetchmany(2) is not None
    cursor.execute("SELECT 1")  # ends the query before
    assert cursor.fetchall() == [(1,)]


def test_what_has_no_rows_says_so(cursor: dbapi.Cursor) -> None:
    for text in ("CREATE INDEX ON flights (altitude)", "DROP INDEX ON flights (altitude)"):
        cursor.execute(text)
        assert cursor.description is None
        assert cursor.rowcount == -1
        with pytest.raises(dbapi.ProgrammingError, match="no rows to fetch"):
            cursor.fetchall()
    cursor.execute("SHOW STREAMS")
    assert cursor.fetchall()[0][0] == "flights"


def test_every_error_has_a_class(cursor: dbapi.Cursor) -> None:
    for text, params, kind in (
        ("SELEC 1", None, dbapi.ProgrammingError),
        ("SELECT x FROM flights", None, dbapi.ProgrammingError),
        ("SELECT * FROM nothing", None, dbapi.ProgrammingError),
        ("SELECT ?", None, dbapi.ProgrammingError),
        ("SELECT ?", [1, 2], dbapi.ProgrammingError),
        ("SELECT ?", "text", dbapi.ProgrammingError),
        ("SELECT ?", [object()], dbapi.ProgrammingError),
        (CREATE, None, dbapi.ProgrammingError),
    ):
        with pytest.raises(kind) as caught:
            cursor.execute(text, params)
        assert isinstance(caught.value.__cause__, errors.ChronicleError)
    listed = {kind: class_of(kind.__new__(kind)) for kind in errors.OUTSIDE}
    assert all(issubclass(kind, dbapi.Error) for kind in listed.values())
    assert listed[errors.QueryTimeout] is dbapi.OperationalError
    assert {kind for kind, found in listed.items() if found is dbapi.DatabaseError} == {
        errors.ChronicleError
    }


def test_there_are_no_transactions(connection: dbapi.Connection, cursor: dbapi.Cursor) -> None:
    connection.commit()
    connection.rollback()
    cursor.executemany(INSERT, rows(1))
    with pytest.raises(dbapi.NotSupportedError, match="cannot be rolled back"):
        connection.rollback()
    connection.commit()
    connection.rollback()
    assert connection.autocommit
    assert connection.execute("SELECT count(*) FROM flights").fetchone() == (1,)


def test_what_is_closed_stays_closed(where: str) -> None:
    connection = dbapi.connect(where)
    cursor = connection.cursor()
    with connection.execute("SELECT 1") as other:
        assert other.fetchone() == (1,)
    cursor.close()
    cursor.close()
    with pytest.raises(dbapi.InterfaceError, match="cursor was closed"):
        cursor.execute("SELECT 1")
    again = connection.cursor()
    connection.close()
    connection.close()
    for use in (lambda: again.execute("SELECT 1"), connection.cursor, connection.commit):
        with pytest.raises(dbapi.InterfaceError, match="connection was closed"):
            use()


def test_a_reader_changes_nothing(where: str, cursor: dbapi.Cursor) -> None:
    cursor.executemany(INSERT, rows(3))
    with dbapi.connect(where, mode="r") as reading:
        assert reading.execute("SELECT count(*) FROM flights").fetchone() == (3,)
        with pytest.raises(dbapi.OperationalError):
            reading.execute("DROP STREAM flights")


def test_a_timeout_ends_a_statement(where: str) -> None:
    with (
        dbapi.connect(where, timeout=0.2) as connection,
        pytest.raises(dbapi.OperationalError),
    ):
        connection.execute("SELECT count(*) FROM range(1000000) a, range(1000000) b").fetchall()


def test_connections_to_one_store_share_it(tmp_path: Path) -> None:
    first = dbapi.connect(tmp_path / "store")
    second = dbapi.connect(str(tmp_path / "store"))
    assert first.database is second.database
    first.close()
    assert second.execute("SELECT 1").fetchone() == (1,)
    second.close()
    with chronicle.open(tmp_path / "store") as database:  # nothing holds it any more
        assert database.streams() == []
        with pytest.raises(dbapi.OperationalError, match=r"locked|open"):
            dbapi.connect(tmp_path / "store")


def test_connecting_wrongly(tmp_path: Path, served: Any) -> None:
    with pytest.raises(dbapi.ProgrammingError, match="'rw' or 'r'"):
        dbapi.connect(tmp_path / "store", mode="w")
    with pytest.raises(dbapi.ProgrammingError, match="for a server"):
        dbapi.connect(tmp_path / "store", token="chr_x")
    with pytest.raises(dbapi.OperationalError):
        dbapi.connect("http://127.0.0.1:9").execute("SELECT 1")
    (tmp_path / "file").write_text("no store")
    with pytest.raises(dbapi.Error):
        dbapi.connect(tmp_path / "file")
    _, secret = create_token(served.database.path, "reader", ["read"])
    with pytest.raises(dbapi.OperationalError, match="token"):
        dbapi.connect(served.url, token="chr_wrong").execute("SELECT 1")
    with dbapi.connect(served.url, token=secret) as reading:
        assert reading.execute("SELECT 1").fetchall() == [(1,)]
        with pytest.raises(dbapi.ProgrammingError, match="scope"):
            reading.execute(CREATE)


def test_pandas_reads_a_connection(connection: dbapi.Connection, cursor: dbapi.Cursor) -> None:
    cursor.executemany(INSERT, rows(5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # pandas knows SQLAlchemy and sqlite3 by name
        found = pd.read_sql("SELECT t, altitude FROM flights WHERE altitude > ?", connection,
                            params=[2.0])  # fmt: skip
    assert found["altitude"].tolist() == [3.0, 4.5, 6.0]
    assert found["t"].dt.second.tolist() == [2, 3, 4]


def test_times_that_python_cannot_hold_stay_exact(connection: dbapi.Connection) -> None:
    schema = pa.schema([pa.field("t", pa.timestamp("ns"), False)])
    connection.database.create_stream("fine", schema, time="t")
    connection.database.stream("fine").append(pa.table({"t": pa.array([1], pa.timestamp("ns"))}))
    (found,) = connection.execute("SELECT t FROM fine").fetchone() or (None,)
    assert isinstance(found, pa.Scalar)
    assert found.value == 1
