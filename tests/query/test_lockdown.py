"""SQL reaches our streams and nothing else: no file, network, setting or runaway memory."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import ChronicleError, ReadOnlyStore, SqlError
from chronicle.query.plan import prepared
from chronicle.query.sql.forms import WINDOWS
from chronicle.query.sql.gate import AGGREGATES, SCALARS

secret_frame = pa.table({"secret": [1]})  # a Python variable that SQL must not see

HOSTILE = """
SELECT * FROM '{path}'
SELECT * FROM "{path}"
SELECT * FROM read_csv('{path}')
SELECT * FROM read_csv_auto('{path}')
SELECT * FROM read_parquet('{path}')
SELECT * FROM read_json('{path}')
SELECT * FROM read_text('{path}')
SELECT * FROM read_blob('{path}')
SELECT * FROM parquet_metadata('{path}')
SELECT * FROM sniff_csv('{path}')
SELECT * FROM glob('/*')
SELECT * FROM main.read_csv('{path}')
SELECT * FROM "read_csv"('{path}')
SELECT read_text('{path}')
SELECT (SELECT content FROM read_text('{path}'))
SELECT x FROM s WHERE x IN (SELECT 1 FROM read_csv('{path}'))
WITH q AS (SELECT * FROM read_csv('{path}')) SELECT * FROM q
SELECT 1 UNION ALL SELECT * FROM read_csv('{path}')
SELECT * FROM s, LATERAL (SELECT * FROM glob('/*'))
COPY s TO '{path}'
COPY (SELECT 1) TO '{path}'
EXPORT DATABASE '{path}'
IMPORT DATABASE '{path}'
ATTACH '{path}'
ATTACH ':memory:' AS m
DETACH memory
USE memory
INSTALL httpfs
LOAD httpfs
LOAD parquet
SELECT * FROM 'https://example.com/x.csv'
SELECT * FROM secret_frame
SET memory_limit = '100GB'
SET enable_external_access = true
RESET memory_limit
PRAGMA enable_profiling
PRAGMA database_list
CALL pragma_version()
CHECKPOINT
VACUUM
ANALYZE
BEGIN
COMMIT
CREATE TABLE t (a INT)
CREATE TEMP TABLE t AS SELECT 1
CREATE VIEW v AS SELECT * FROM read_csv('/etc/passwd')
CREATE TEMP VIEW v AS SELECT 1
CREATE MACRO m(a) AS a
CREATE SECRET (TYPE s3)
CREATE SCHEMA q
CREATE TYPE q AS ENUM ('a')
DROP TABLE s
DROP VIEW s
ALTER TABLE s ADD COLUMN q INT
UPDATE s SET x = (SELECT 1)
DELETE FROM main.s
DELETE FROM s USING s AS q
DELETE FROM s AS q
DELETE FROM s WHERE x IN (SELECT 1)
DELETE FROM s WHERE getenv('HOME') = 'x'
DELETE FROM duckdb_settings()
MERGE INTO s USING s AS q ON true WHEN MATCHED THEN DELETE
TRUNCATE main.s
TRUNCATE s, s
TRUNCATE s CASCADE
PREPARE p AS SELECT 1
EXECUTE p
DEALLOCATE p
SET VARIABLE v = 1
SELECT getvariable('v')
SELECT current_setting('memory_limit')
SELECT * FROM duckdb_settings()
SELECT * FROM duckdb_secrets()
SELECT * FROM duckdb_functions()
SELECT * FROM pragma_version()
SELECT * FROM information_schema.key_column_usage
SELECT * FROM information_schema.character_sets
SELECT * FROM system.information_schema.tables
SELECT * FROM memory.information_schema.columns
SELECT table_type, is_insertable_into FROM information_schema.tables
SELECT * FROM pg_catalog.pg_tables
SELECT * FROM sqlite_master
SELECT * FROM pg_tables
SELECT * FROM memory.main.s
SELECT * FROM main.s
SELECT version()
SELECT current_database()
SELECT current_schema()
SELECT current_user
SELECT session_user
SELECT current_catalog
SELECT getenv('HOME')
SELECT write_log('x')
SELECT nextval('q')
SELECT json_serialize_sql('SELECT 1')
SELECT json_execute_serialized_sql('x')
SELECT * FROM json_execute_serialized_sql('x')
SELECT * FROM query('SELECT 1')
SELECT * FROM query_table('s')
SELECT * FROM test_all_types()
SELECT * FROM seq_scan('s')
SELECT * FROM arrow_scan(1, 2, 3)
SELECT * FROM python_map_function(1)
SELECT repeat('x', 1000000000)
SELECT lpad('x', 1000000000, 'y')
SELECT rpad('x', x::INTEGER, 'y') FROM s
SELECT bar(1, 0, 1, 1000000000)
SELECT list_resize([1], 1000000000)
SELECT array_resize([1], 1000000000)
SELECT range(1000000000)
SELECT generate_series(1, 100000000000)
SELECT list_sum(range(50000000))
SELECT * FROM range(100000000000)
SELECT * FROM generate_series(0, 1000000000, 1)
SELECT range(x::BIGINT) FROM s
SELECT format('{{:>1000000000}}', 'x')
SELECT printf('%1000000000d', 1)
SELECT printf('%*d', 1000000000, 1)
SELECT format('{{:{{}}}}', 1, 1000000000)
SELECT sleep_ms(100000)
SELECT setseed(0.5)
SELECT error('x')
SELECT st_geomfromwkb('x')
SELECT 1; SELECT 2
SELECT 1; DROP STREAM s
SELECT 1 INTO t
SELECT * FROM s FOR UPDATE
SELECT * FROM s AT (VERSION => 1)
PIVOT s ON x
SELECT * FROM s PIVOT (count(*) FOR x IN (1, 2))
SUMMARIZE s
DESCRIBE SELECT * FROM read_csv('{path}')
EXPLAIN SELECT * FROM read_csv('{path}')
EXPLAIN ANALYZE SELECT * FROM glob('/*')
INSERT INTO s SELECT * FROM read_csv('{path}')
INSERT INTO s (x) VALUES ((SELECT content FROM read_text('{path}')))
SELECT CAST(1 AS unknown_type)
SHOW ALL TABLES
SHOW DATABASES
""".strip().splitlines()


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    opened = chronicle.open(tmp_path_factory.mktemp("store"), frames=False)
    stream = opened.create_stream("s", pa.schema([("t", pa.int64()), ("x", pa.float64())]), "t")
    stream.append(pa.table({"t": [1, 2, 3], "x": [1.0, 2.0, 3.0]}))
    yield opened
    opened.close()


@pytest.fixture
def readable(tmp_path):
    path = tmp_path / "readable.csv"
    path.write_text("a,b\n1,2\n")
    return path


@pytest.mark.parametrize("sql", HOSTILE)
def test_hostile_statements_are_refused(database, readable, sql):
    with pytest.raises(SqlError):
        database.sql(sql.format(path=readable)).fetchall()
    assert readable.read_text() == "a,b\n1,2\n"
    assert database.stream("s").count == 3


REACHING_OUT = """
SELECT * FROM '{path}'
SELECT * FROM read_csv('{path}')
SELECT * FROM read_text('{path}')
SELECT * FROM glob('/*')
SELECT * FROM 'https://example.com/x.csv'
SELECT * FROM secret_frame
""".strip().splitlines()


@pytest.mark.parametrize("sql", REACHING_OUT)
def test_the_executor_refuses_by_itself_where_the_gate_is_open(
    database, readable, sql, monkeypatch
):
    monkeypatch.setattr(prepared, "check_query", lambda *_: None)
    with pytest.raises(ChronicleError):
        database.sql(sql.format(path=readable)).fetchall()


def test_every_allowed_function_exists():
    connection = duckdb.connect()
    rows = connection.execute("SELECT DISTINCT lower(function_name) FROM duckdb_functions()")
    known = {name for (name,) in rows.fetchall()}
    connection.close()
    written_by_the_grammar = {
        "coalesce", "columns", "grouping", "grouping_id", "unnest", "percentile_cont",
        "percentile_disc", "ifnull",
    }  # fmt: skip
    assert (SCALARS | AGGREGATES | WINDOWS) - known <= written_by_the_grammar


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT lpad('x', 10, 'y'), rpad('x', 5, ' ')",
        "SELECT range(10), generate_series(1, 5, 2), list_sum(range(1000))",
        "SELECT * FROM range(-5, 5) AS r(i)",
        "SELECT format('{:.2f} {}', 1.5, 'a'), printf('%05d', 3)",
        "SELECT current_date, now(), localtimestamp",
        "SELECT list_resize([1], 3), to_base(255, 16)",
    ],
)
def test_bounded_uses_of_growing_functions_run(database, sql):
    assert database.sql(sql).arrow().num_rows > 0


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO s VALUES (4, 5)",
        "CREATE STREAM q (t BIGINT) TIMESTAMP BY t",
        "DROP STREAM s",
        "ALTER STREAM s ADD COLUMN y DOUBLE",
        "CREATE INDEX ON s (x)",
        "DROP INDEX ON s (x)",
    ],
)
def test_reading_only_refuses_changes(database, sql, tmp_path):
    with pytest.raises(ReadOnlyStore):
        database.sql(sql, read_only=True)
    with chronicle.open(database.path, mode="r") as reader, pytest.raises(ReadOnlyStore):
        reader.sql(sql)
    assert database.streams() == ["s"]
    assert database.stream("s").count == 3


def test_reading_only_answers_queries(database):
    assert database.sql("SELECT count(*) FROM s", read_only=True).fetchall() == [(3,)]
    assert database.sql("SHOW STREAMS", read_only=True).arrow().num_rows == 1
    assert database.sql("DESCRIBE s", read_only=True).arrow().num_rows == 2
