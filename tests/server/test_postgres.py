"""PostgreSQL's protocol, as psycopg, asyncpg, psql and JDBC speak it."""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

psycopg = pytest.importorskip("psycopg", reason="no psycopg is installed")
asyncpg = pytest.importorskip("asyncpg", reason="no asyncpg is installed")

import trustme  # noqa: E402

from chronicle.server import create_token  # noqa: E402
from chronicle.server.access.tokens import revoke_token  # noqa: E402
from chronicle.tests.patience import PATIENCE_S  # noqa: E402

from .test_tls import write_pair  # noqa: E402

START = dt.datetime(2026, 3, 1)
COLUMNS = {
    "t": pa.timestamp("us"),
    "k": pa.string(),
    "x": pa.float64(),
    "n": pa.int32(),
    "price": pa.decimal128(20, 3),
    "ok": pa.bool_(),
    "big": pa.uint64(),
    "raw": pa.binary(),
}


def rows(count: int) -> list[tuple[Any, ...]]:
    return [
        (
            START + dt.timedelta(milliseconds=1500 * n),
            f"k{n % 3}",
            n / 2,
            n % 7 if n % 5 else None,
            Decimal(n * 12_345 - 5_000_000) / 1000,
            n % 2 == 0,
            2**63 + n,
            bytes([n % 256, 0]),
        )
        for n in range(count)
    ]


def fill(database: Any, count: int = 1000) -> list[tuple[Any, ...]]:
    wanted = rows(count)
    database.sql(
        "CREATE STREAM flights (t TIMESTAMP, k VARCHAR, x DOUBLE, n INTEGER, price DECIMAL(20, 3), "
        "ok BOOLEAN, big UBIGINT, raw BLOB) TIMESTAMP BY t"
    )
    columns = zip(*wanted, strict=True)
    arrays = [pa.array(c, t) for c, t in zip(columns, COLUMNS.values(), strict=True)]
    database.stream("flights").append(pa.table(arrays, names=list(COLUMNS)))
    database.sql("CREATE VIEW high AS SELECT t, x FROM flights WHERE x > 100")
    return wanted


@pytest.fixture
def port(serve_app: Callable[..., Any]) -> Callable[..., int]:
    """Serve a database, and give the port of PostgreSQL's protocol."""

    def serve(database: Any, **settings: Any) -> int:
        served = serve_app(database, **{"postgres_port": 0, "isolation": "none", **settings})
        return int(served.app.state.postgres.port)

    return serve


@pytest.fixture
def connect(port: Callable[..., int]) -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def make(database: Any, password: str = "", sslmode: str = "prefer", **settings: Any) -> Any:
        opened.append(
            psycopg.connect(
                host="127.0.0.1",
                port=port(database, **settings),
                user="me",
                dbname="chronicle",
                password=password,
                sslmode=sslmode,
                autocommit=True,
            )
        )
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()


def with_asyncpg(port: int, use: Callable[[Any], Any]) -> Any:
    async def run() -> Any:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=port, user="me", database="chronicle", timeout=PATIENCE_S
        )
        try:
            return await use(connection)
        finally:
            await connection.close()

    return asyncio.run(run())


# ------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_all_rows_come_as_they_are(database: Any, connect: Any, binary: bool) -> None:
    wanted = fill(database, 10_000)
    cursor = connect(database).cursor(binary=binary)
    cursor.execute("SELECT * FROM flights")
    assert [column.name for column in cursor.description] == list(COLUMNS)
    assert cursor.fetchall() == [(*row[:6], Decimal(row[6]), row[7]) for row in wanted]


VALUES = {
    "NULL": None,
    "DATE '1969-12-31'": dt.date(1969, 12, 31),
    "TIME '10:11:12.5'": dt.time(10, 11, 12, 500_000),
    "TIMESTAMP '1900-01-01 00:00:00.000001'": dt.datetime(1900, 1, 1, microsecond=1),
    "TIMESTAMPTZ '2026-03-01 12:00:00+02'": dt.datetime(2026, 3, 1, 10, tzinfo=dt.timezone.utc),
    "CAST(9223372036854775807 AS BIGINT)": 2**63 - 1,
    "CAST(-32768 AS SMALLINT)": -(2**15),
    "CAST(-1.5 AS FLOAT)": -1.5,
    "CAST('inf' AS DOUBLE)": float("inf"),
    "CAST(0 AS DECIMAL(5, 2))": Decimal("0.00"),
    "CAST('-99999999999999999999999999999999999.001' AS DECIMAL(38, 3))": Decimal(
        "-99999999999999999999999999999999999.001"
    ),
    "CAST('0.00000001' AS DECIMAL(18, 8))": Decimal("0.00000001"),
    "'a''b\u00e9'": "a'b\u00e9",
    "''": "",
    "[1, 2]": [1, 2],
    "{'a': 1, 'b': 'x'}": {"a": 1, "b": "x"},
    "INTERVAL 90 MINUTE": "PT1H30M",
}


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_each_type(database: Any, connect: Any, binary: bool) -> None:
    cursor = connect(database).cursor(binary=binary)
    cursor.execute("SELECT " + ", ".join(VALUES))
    assert dict(zip(VALUES, cursor.fetchone(), strict=True)) == VALUES


def test_nanoseconds_stay_in_text_and_are_named_where_they_are_cut(
    database: Any, connect: Any
) -> None:
    connection, notices = connect(database), []
    connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    query = "SELECT TIMESTAMP_NS '2026-03-01 00:00:00.123456789' AS fine"
    assert connection.pgconn.exec_(query.encode()).get_value(0, 0).endswith(b".123456789")
    assert not notices
    moment = connection.cursor(binary=True).execute(query).fetchone()[0]
    assert moment == dt.datetime(2026, 3, 1, microsecond=123_456)
    assert len(notices) == 1
    assert "fine" in notices[0]


def test_parameters_of_each_type(database: Any, connect: Any, port: Any) -> None:
    wanted = fill(database)
    given = {"t": wanted[7][0], "k": "k1", "x": 3.5, "n": 0, "price": wanted[7][4], "ok": False}
    expected = [row[:6] for row in wanted if row[:6] == tuple(wanted[7][:6])]
    conditions = " AND ".join(f"{name} = %s" for name in given)
    query = f"SELECT t, k, x, n, price, ok FROM flights WHERE {conditions}"
    values = [*given.values()]
    connection = connect(database)
    for binary in (False, True):
        assert connection.execute(query, values, binary=binary).fetchall() == expected

    async def ask(driver: Any) -> Any:
        numbered = query
        for place in range(1, len(values) + 1):
            numbered = numbered.replace("%s", f"${place}", 1)
        limited = await driver.fetch("SELECT x FROM public.flights ORDER BY x LIMIT $1", 2)
        cast = await driver.fetchval("SELECT $1::int + 1", 5)
        return [tuple(row) for row in await driver.fetch(numbered, *values)], limited, cast

    found, limited, cast = with_asyncpg(connection.info.port, ask)
    assert found == expected
    assert ([row["x"] for row in limited], cast) == ([0.0, 0.5], 6)


def test_lists_as_parameters(database: Any, connect: Any) -> None:
    wanted = fill(database)
    connection = connect(database)
    for at, name in enumerate([*COLUMNS][:6]):
        values = [wanted[3][at], wanted[8][at], None]
        matches = sum(row[at] in values for row in wanted if row[at] is not None)
        query = f"SELECT count(*) FROM flights WHERE {name} = ANY("
        for form in "sbt":
            found = connection.execute(f"{query}%{form})", [values]).fetchone()
            assert found == (matches,), (name, form)
        asked = f"{query}$1)"
        found = with_asyncpg(connection.info.port, lambda c, q=asked, v=values: c.fetchval(q, v))
        assert found == matches, name
    others = connection.execute("SELECT count(*) FROM flights WHERE n <> ALL(%s)", [[0, 1]])
    assert others.fetchone() == (sum(row[3] not in (0, 1, None) for row in wanted),)
    texts = ['b,"\\', "NULL", "", None, "{}"]
    for form in "bt":
        assert connection.execute(f"SELECT %{form}::VARCHAR[]", [texts]).fetchone() == (texts,)
    assert connection.execute("SELECT %s", [UUID(int=5)]).fetchone() == (str(UUID(int=5)),)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="of one dimension"):
        connection.execute("SELECT %s", [[[1], [2]]])


def test_a_parameter_that_is_no_value_of_its_type(database: Any, connect: Any) -> None:
    connection = connect(database)
    result = connection.pgconn.exec_params(b"SELECT $1", [b"many"], [23], [0])
    assert b"expected a value of type integer, found 'many'" in result.error_message
    result = connection.pgconn.exec_params(b"SELECT $1", [b"\0\1"], [1005], [1])
    assert b"expected an array of one dimension" in result.error_message
    result = connection.pgconn.exec_params(b"SELECT $1", [b"\0\1"], [2950], [1])  # a UUID
    assert b"expected a value of type text" in result.error_message
    result = connection.pgconn.exec_params(b"SELECT $1", [b"\0\1"], [600], [1])
    assert b"OID 600 is not known" in result.error_message  # a point, once a text of its bytes


def test_parameters_that_are_finer_than_a_microsecond_and_intervals(
    database: Any, connect: Any
) -> None:
    fill(database)
    connection = connect(database)
    query = "SELECT count(*) FROM flights WHERE t = %s"
    assert connection.execute(query, ("2026-03-01 01:00:00+01",)).fetchone() == (1,)
    with pytest.raises(psycopg.Error, match="finer"):
        connection.execute(query, ("2026-03-01 00:00:00.0000009",))
    later = "SELECT count(*) FROM flights WHERE t < TIMESTAMP '2026-03-01' + %s"
    assert connection.execute(later, (dt.timedelta(seconds=3),)).fetchone() == (2,)
    windows = "SELECT count(*) FROM TUMBLE(flights, t, %s) GROUP BY window_start, window_end"
    assert connection.execute(windows, (dt.timedelta(days=1),)).fetchall() == [(1000,)]


# ------------------------------------------------------------------------------------ queries


def test_a_pattern(database: Any, connect: Any) -> None:
    fill(database)
    found = connect(database).execute(
        "SELECT * FROM flights MATCH_RECOGNIZE (ORDER BY t MEASURES a.t AS begun, last(b.x) AS top "
        "PATTERN (a b) DEFINE b AS b.x > 499)"
    )
    assert found.fetchall() == [(START + dt.timedelta(seconds=1500 - 3), 499.5)]


def test_several_statements_in_one_text(database: Any, connect: Any) -> None:
    fill(database)
    cursor = connect(database).execute("BEGIN; SELECT count(*) FROM flights; SELECT 'a;b'; COMMIT")
    answers = [cursor.statusmessage]
    while cursor.nextset():
        answers.append(cursor.fetchall() if cursor.description else cursor.statusmessage)
    assert answers == ["BEGIN", [(1000,)], [("a;b",)], "COMMIT"]


def test_a_portal_gives_its_rows_in_parts(database: Any, port: Any) -> None:
    fill(database, 5000)

    async def ask(driver: Any) -> list[Any]:
        async with driver.transaction():
            cursor = driver.cursor("SELECT x FROM flights ORDER BY x", prefetch=777)
            return [row["x"] async for row in cursor]

    assert with_asyncpg(port(database), ask) == [n / 2 for n in range(5000)]


ERRORS = {
    "SELECT altitud FROM flights": ("42601", "no column 'altitud'", 8),
    "selekt 1": ("42601", "did you mean SELECT", 1),
    "SELECT * FROM nowhere": ("42601", "nowhere", 15),
    "INSERT INTO flights (t) VALUES (now())": ("25006", "for reading here", None),
    "DROP STREAM flights": ("25006", "for reading here", None),
    "COPY flights TO STDOUT": ("42601", "COPY", 1),
    "SELECT pg_sleep(10)": ("42601", "pg_sleep", None),
    "SELECT pg_read_file('/etc/passwd')": ("42601", "pg_read_file", None),
    "SELECT * FROM pg_class, read_csv('/etc/passwd')": ("42601", "", None),
    f"SELECT oid FROM pg_class WHERE oid IN ({'1, ' * 20_000}1)": ("42601", "32,768 chara", None),
}


def test_an_error_says_what_and_where(database: Any, connect: Any) -> None:
    fill(database, 10)
    connection = connect(database)
    for text, (state, said, position) in ERRORS.items():
        with pytest.raises(psycopg.Error) as failed:
            connection.execute(text)
        assert failed.value.sqlstate == state, text[:40]
        assert said in str(failed.value)
        where = failed.value.diag.statement_position
        assert where == (None if position is None else str(position)), text[:40]
        assert connection.execute("SELECT count(*) FROM flights").fetchone() == (10,)


def test_a_failed_transaction_is_over_after_rollback(database: Any, connect: Any) -> None:
    connection = connect(database)
    connection.execute("BEGIN")
    for expected in (psycopg.errors.SyntaxError, psycopg.errors.InFailedSqlTransaction):
        with pytest.raises(expected):
            connection.execute("SELECT" if expected is psycopg.errors.SyntaxError else "SELECT 1")
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_settings(database: Any, connect: Any) -> None:
    connection, notices = connect(database), []
    connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    assert connection.execute("SHOW search_path").fetchone() == ("public",)
    connection.execute("SET client_encoding = 'UTF8'")
    connection.execute("SET statement_timeout = 1000")
    assert not notices
    connection.execute("SET TIME ZONE 'Europe/Berlin'")
    connection.execute("SET work_mem = '1GB'")
    assert notices == ["timezone stays UTC here", "work_mem has no effect here"]


def test_statement_timeout_shortens_the_limit(database: Any, connect: Any) -> None:
    fill(database, 3000)
    connection = connect(database)
    connection.execute("SET statement_timeout = '1ms'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute("SELECT sum(a.x * b.x * c.x) FROM flights a, flights b, flights c")


def test_a_client_cancels_its_query(database: Any, port: Any) -> None:
    fill(database, 3000)

    async def ask(driver: Any) -> None:
        endless = "SELECT sum(a.x * b.x * c.x) FROM flights a, flights b, flights c"
        with pytest.raises(TimeoutError):
            await driver.fetch(endless, timeout=0.2)
        assert await driver.fetchval("SELECT count(*) FROM flights") == 3000

    with_asyncpg(port(database, query_timeout_ms=3_600_000), ask)


def test_workers_answer_as_the_server_does(database: Any, connect: Any) -> None:
    fill(database)
    connection = connect(database, isolation="process")
    assert connection.execute("SELECT count(*), max(x) FROM flights").fetchone() == (1000, 499.5)
    assert connection.execute("SELECT relname FROM pg_class ORDER BY 1").fetchall() == [
        ("flights",),
        ("high",),
    ]


# ---------------------------------------------------------------------------------- catalogue

IN_PATH = (
    "quote_ident(table_schema) IN (SELECT CASE WHEN trim(p[i]) = '\"$user\"' THEN user ELSE "
    "trim(p[i]) END FROM generate_series(array_lower(string_to_array(current_setting("
    "'search_path'), ','), 1), array_upper(string_to_array(current_setting('search_path'), ','), "
    "1)) AS i, string_to_array(current_setting('search_path'), ',') p)"
)
CATALOGUE: dict[str, Any] = {
    "SELECT version()": [("PostgreSQL 15.0 (Chronicle)",)],
    "SELECT current_database(), current_schema(), current_user, session_user": [
        ("chronicle", "public", "chronicle", "chronicle")
    ],
    "SELECT current_setting('server_version_num')::int / 100 AS version": [(1500,)],
    "SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'": [],
    "SELECT datname FROM pg_catalog.pg_database WHERE NOT pg_catalog.pg_database.datistemplate": [
        ("chronicle",)
    ],
    "SELECT table_name, table_type FROM information_schema.tables ORDER BY 1": [
        ("flights", "BASE TABLE"),
        ("high", "VIEW"),
    ],
    f"SELECT CASE WHEN {IN_PATH} THEN quote_ident(table_name) ELSE 'elsewhere' END AS \"table\" "
    "FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN "
    "('information_schema', 'pg_catalog') ORDER BY 1": [("flights",), ("high",)],
    "SELECT quote_ident(column_name), data_type FROM information_schema.columns WHERE CASE WHEN "
    "array_length(parse_ident('high'), 1) = 2 THEN FALSE ELSE quote_ident(table_name) = "
    f"(parse_ident('high'))[1] AND {IN_PATH} END": [
        ("t", "timestamp without time zone"),
        ("x", "double precision"),
    ],
    "SELECT c.oid::regclass::text, c.relkind FROM pg_class c WHERE c.oid = 'high'::regclass": [
        ("high", "v")
    ],
    "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull FROM pg_attribute a "
    "WHERE a.attrelid = 'public.flights'::regclass AND attnum BETWEEN 1 AND 2": [
        ("t", "timestamp without time zone", True),
        ("k", "text", False),
    ],
    "SELECT pg_get_viewdef(c.oid) FROM pg_class c WHERE relkind = 'v'": [
        ("SELECT t, x FROM flights WHERE x > 100",)
    ],
    "SELECT n.nspname, count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relname OPERATOR(pg_catalog.~) '^(f.*)$' COLLATE pg_catalog.default AND "
    "pg_catalog.pg_table_is_visible(c.oid) GROUP BY 1": [("public", 1)],
    "SELECT string_agg(word, ',') FROM pg_get_keywords() WHERE word <> ALL ('{a,b}'::text[])": [
        (None,)
    ],
    "SELECT ARRAY(SELECT rolname FROM pg_roles), has_table_privilege('flights', 'SELECT')": [
        (["chronicle"], True)
    ],
    "SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass('flights')": [(100,)],
}


def test_what_tools_ask_of_the_catalogue(database: Any, connect: Any) -> None:
    fill(database, 100)
    connection = connect(database)
    assert {text: connection.execute(text).fetchall() for text in CATALOGUE} == CATALOGUE
    assert connection.execute("SELECT obj_description(%s, 'x')", (5,)).fetchall() == [(None,)]


def psql(port: int, *commands: str, password: str = "") -> str:
    if shutil.which("psql") is None:
        pytest.skip("no psql is installed")
    arguments = [part for command in commands for part in ("-c", command)]
    environment = {
        "PGPASSWORD": password, "PGSSLMODE": "prefer", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin",
    }  # fmt: skip
    ended = subprocess.run(
        ["psql", "-X", "-A", "-h", "127.0.0.1", "-p", str(port), "-U", "me", "chronicle",
         *arguments],
        capture_output=True, text=True, env=environment, timeout=PATIENCE_S,
    )  # fmt: skip
    return ended.stdout + ended.stderr


def test_psql_describes_streams(database: Any, port: Any) -> None:
    fill(database, 100)
    listed = psql(port(database), r"\d", r"\d flights", r"\d+ high", r"\dn", r"\l", r"\du", r"\dp",
                  r"\df", r"\dT", r"\di", r"\dx", r"\ds", r"\dv+", r"\dt+")  # fmt: skip
    assert "ERROR" not in listed
    for line in (
        "public|flights|table|chronicle", "public|high|view|chronicle",
        "t|timestamp without time zone||not null|", "price|numeric|||",
        "SELECT t, x FROM flights WHERE x > 100",
    ):  # fmt: skip
        assert line in listed, listed


def test_psql_shows_where_an_error_is(database: Any, port: Any) -> None:
    fill(database, 10)
    said = psql(port(database), "SELECT k,\n altitud FROM flights")
    assert "LINE 2:  altitud FROM flights" in said


JDBC = """
import java.sql.*;
public class Ask {
  static String all(ResultSet r, String... names) throws SQLException {
    StringBuilder text = new StringBuilder();
    while (r.next()) for (String name : names) text.append(r.getString(name)).append(' ');
    return text.toString().trim();
  }
  public static void main(String[] a) throws Exception {
    Connection c = DriverManager.getConnection(a[0], "me", "");
    DatabaseMetaData m = c.getMetaData();
    System.out.println(all(m.getTables(null, null, "%", new String[]{"TABLE", "VIEW"}),
        "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE"));
    System.out.println(all(m.getColumns(null, "public", "flights", "%"),
        "COLUMN_NAME", "TYPE_NAME"));
    System.out.println(all(m.getPrimaryKeys(null, "public", "flights"), "COLUMN_NAME")
        + all(m.getIndexInfo(null, "public", "flights", false, false), "INDEX_NAME")
        + all(m.getImportedKeys(null, "public", "flights"), "FKCOLUMN_NAME")
        + all(m.getFunctions(null, null, "%"), "FUNCTION_NAME"));
    System.out.println(all(m.getTypeInfo(), "TYPE_NAME").contains("float8"));
    PreparedStatement p = c.prepareStatement(
        "SELECT t, price, x, n, ok FROM flights WHERE x > ? AND k = ? ORDER BY t LIMIT 1");
    for (int i = 0; i < 8; i++) {  // from the fifth on, values come in binary
      p.setDouble(1, 3.5); p.setString(2, "k1");
      ResultSet r = p.executeQuery(); r.next();
      System.out.println(r.getTimestamp(1) + " " + r.getBigDecimal(2) + " " + r.getDouble(3) + " "
          + r.getInt(4) + " " + r.getBoolean(5));
    }
    c.setAutoCommit(false);
    Statement s = c.createStatement(); s.setFetchSize(300);
    ResultSet r = s.executeQuery("SELECT x FROM flights"); int n = 0;
    while (r.next()) n++;
    System.out.println(n);
    c.commit(); c.close();
  }
}
"""


def test_jdbc(database: Any, port: Any, tmp_path: Path) -> None:
    jar = Path("/usr/share/java/postgresql.jar")
    if shutil.which("javac") is None or not jar.exists():
        pytest.skip("no JDK, or no JDBC driver of PostgreSQL, is installed")
    fill(database)
    (tmp_path / "Ask.java").write_text(JDBC)
    url = f"jdbc:postgresql://127.0.0.1:{port(database)}/chronicle"
    ended = subprocess.run(
        ["java", "-Duser.timezone=UTC", "-cp", str(jar), str(tmp_path / "Ask.java"), url],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    said = ended.stdout.splitlines()
    assert said[0] == "public flights TABLE public high VIEW", ended.stderr
    assert said[1].startswith("t timestamp k text x float8 n int4 price numeric ok bool")
    assert said[2:4] == ["", "true"]
    assert said[4:12] == ["2026-03-01 00:00:15.0 -4876.550 5.0 0 true"] * 8
    assert said[12] == "1000"


# ----------------------------------------------------------------------------------- security


def test_a_token_is_the_password(database: Any, connect: Any, port: Any) -> None:
    fill(database)
    database.sql("CREATE STREAM secret (t BIGINT, x DOUBLE) TIMESTAMP BY t")
    _, token = create_token(database.path, "reader", ["read"], ["flights"])
    served = port(database)
    for wrong in ("wrong", token[:-1]):
        with pytest.raises(psycopg.OperationalError, match="the password is a token"):
            psycopg.connect(host="127.0.0.1", port=served, user="me", password=wrong)
    with psycopg.connect(
        host="127.0.0.1", port=served, user="me", password=token, autocommit=True
    ) as connection:
        assert connection.execute("SELECT count(*) FROM flights").fetchone() == (1000,)
        names = connection.execute("SELECT relname FROM pg_class").fetchall()
        assert names == [("flights",)]
        columns = connection.execute("SELECT DISTINCT table_name FROM information_schema.columns")
        assert columns.fetchall() == [("flights",)]
        for query in ("SELECT * FROM secret", "SELECT * FROM secret, pg_class"):
            with pytest.raises(psycopg.errors.SyntaxError, match="secret"):
                connection.execute(query)


def test_a_revoked_token_ends_at_the_next_statement(database: Any, port: Any) -> None:
    fill(database, 10)
    create_token(database.path, "other", ["read"])
    _, token = create_token(database.path, "reader", ["read"])
    with psycopg.connect(
        host="127.0.0.1", port=port(database), user="me", password=token, autocommit=True
    ) as connection:
        connection.execute("SELECT 1")
        revoke_token(database.path, "reader")
        with pytest.raises(psycopg.errors.InvalidPassword):
            connection.execute("SELECT 1")


def test_tls(database: Any, connect: Any, tmp_path: Path) -> None:
    fill(database, 10)
    certificate, key = write_pair(tmp_path, trustme.CA().issue_cert("127.0.0.1"))
    connection = connect(database, sslmode="require", tls_cert=certificate, tls_key=key)
    assert connection.pgconn.ssl_in_use
    assert connection.execute("SELECT count(*) FROM flights").fetchone() == (10,)
    with pytest.raises(psycopg.OperationalError, match="sslmode=require"):
        psycopg.connect(host="127.0.0.1", port=connection.info.port, user="me", sslmode="disable")
    with socket.create_connection(("127.0.0.1", connection.info.port), PATIENCE_S) as raw:
        raw.sendall(struct.pack(">ii", 8, 80877103) + STARTUP)
        assert raw.recv(65_536) in (b"", b"S")
        assert raw.recv(65_536) == b""


STARTUP = struct.pack(">ii", 8 + len(b"user\0me\0\0"), 3 << 16) + b"user\0me\0\0"
HOSTILE = {
    "a length beyond the limit": b"\x7f\xff\xff\xff",
    "a length below itself": b"\0\0\0\x01",
    "another protocol": struct.pack(">ii", 8, 2 << 16),
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "a query of 2 GiB": STARTUP + b"Q\x7f\xff\xff\xff",
    "a negative length": STARTUP + b"Q\xff\xff\xff\xff",
    "a text without an end": STARTUP + b"Q\0\0\0\x08abcd",
    "counts beyond the message": STARTUP + b"B\0\0\0\x0c\0\0\xff\xff\xff\xff\0\0",
    "no UTF-8": STARTUP + b"Q\0\0\0\x07\xff\xfe\0",
    "an unknown kind": STARTUP + b"?\0\0\0\x04",
    "COPY data": STARTUP + b"d\0\0\0\x04",
    "a portal that is not there": STARTUP + b"E\0\0\0\x09\0\0\0\0\0",
    "a cancel with half a key": struct.pack(">iii", 12, 80877102, 1),
    "a cancel of nobody": struct.pack(">iiii", 16, 80877102, 1, 1),
}


def test_hostile_bytes_end_or_fail_their_own_session(database: Any, port: Any, caplog: Any) -> None:
    fill(database, 10)
    served = port(database)
    for name, sent in HOSTILE.items():
        with socket.create_connection(("127.0.0.1", served), PATIENCE_S) as raw:
            raw.sendall(sent)
            raw.shutdown(socket.SHUT_WR)
            said = b"".join(iter(lambda raw=raw: raw.recv(65_536), b""))
        assert "ended" not in caplog.text, name  # by an error that nobody expected
        assert b"Traceback" not in said, name
        assert b"request_id" not in said, name
        with psycopg.connect(host="127.0.0.1", port=served, user="me") as connection:
            assert connection.execute("SELECT count(*) FROM flights").fetchone() == (10,)


def test_what_a_session_prepared_is_given_back(database: Any, port: Any) -> None:
    fill(database, 10)
    text = "SELECT $1 AS long --" + "x" * 100_000

    async def ask(driver: Any) -> None:
        for _ in range(100):  # 10 MB of texts and as much of values, never more than 2 MB at once
            statement = await driver.prepare(text)
            assert await statement.fetchval("y" * 100_000)
            del statement
            assert await driver.fetchval("SELECT count(*) FROM flights") == 10

    with_asyncpg(port(database, max_upload_memory_bytes=3_000_000), ask)


def test_a_session_has_a_bounded_number_of_statements(database: Any, connect: Any) -> None:
    session = connect(database).pgconn
    names = [f"s{n}".encode() for n in range(1001)]
    answers = [session.prepare(name, b"SELECT 1").error_message for name in names]
    assert answers[:1000] == [b""] * 1000
    assert b"at most 1000 prepared statements" in answers[1000]
    session.exec_(b"DEALLOCATE ALL")
    assert session.prepare(b"again", b"SELECT 1").error_message == b""


def test_connections_of_an_address_are_bounded(database: Any, port: Any) -> None:
    served = port(database, max_address_connections=2)
    where = {"host": "127.0.0.1", "port": served, "user": "me"}
    with (
        psycopg.connect(**where),
        psycopg.connect(**where),
        pytest.raises(psycopg.OperationalError),
    ):
        psycopg.connect(**where)


def test_statements_are_logged_like_requests(database: Any, connect: Any) -> None:
    connection = connect(database)
    connection.execute("SELECT 41 + 1")
    listed = connection.execute("SELECT text, rows FROM chronicle.query_log").fetchall()
    assert ("SELECT 41 + 1", 1) in listed
