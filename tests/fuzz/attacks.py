"""Attacks that once worked, kept as texts: statements, bodies, requests.

Purpose
    :data:`STATEMENTS` are SQL texts of a reader; none may cost more than its own answer, and where
    ``refused`` is set it must be an error of the client.  :data:`BODIES` are request bodies for an
    append.  ``test_attack_corpus.py`` sends them all; ``tests/server/test_hostile_bodies.py`` sends
    bodies within the process of the test.  Add here what a fuzzer finds.
"""

from __future__ import annotations

import gzip
import io
import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

__all__ = ["BODIES", "STATEMENTS", "Attack"]


@dataclass(frozen=True)
class Attack:
    """A text, and whether it must be refused.

    Attributes
    ----------
    name : str
    make : callable
        Gives the text or the body; it may be large.
    refused : bool
        An answer of 200 is a fault, too.
    format : str
        Of a body.
    encoding : str
        Content-Encoding of a body.
    status : int
        For a body, of a server with small limits.
    """

    name: str
    make: Callable[[], str | bytes]
    refused: bool = False
    format: str = ""
    encoding: str = ""
    status: int = 400


def _sql(name: str, text: str, refused: bool = False) -> Attack:
    return Attack(name, lambda: text, refused)


MACRO = "nocase; create or replace macro main.upper(x) as ''P''; select 1"
COLLATE = f"'a' COLLATE '{MACRO}'"
MATCH = "FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES {} AS m PATTERN (A{}) {} DEFINE {})"


def _nested(opening: str, inner: str, closing: str, times: int) -> str:
    return opening * times + inner + closing * times


def _lambdas(depth: int) -> str:
    text = "1"
    for level in range(depth):
        text = f"list_transform(range(100), q{level} -> {text})"
    return f"SELECT {text}"


def _betweens(depth: int) -> str:
    text = "x"
    for _ in range(depth):
        text = f"({text} BETWEEN 1 AND 2)::INTEGER"
    return text


STATEMENTS = [
    # -- text that a generator prints as it came -----------------------------------------------
    _sql("collation", f"SELECT {COLLATE}"),
    _sql("collation explained", f"EXPLAIN SELECT {COLLATE}"),
    _sql("collation described", f"DESCRIBE SELECT {COLLATE}"),
    _sql("collation inserted", f"INSERT INTO s SELECT 1, {COLLATE}", True),
    _sql("collation in a window", f"SELECT count(*) FROM TUMBLE(s, t, {COLLATE}) GROUP BY 1"),
    _sql("collation in DEFINE", "SELECT * " + MATCH.format("A.t", "", "", f"A AS k = {COLLATE}")),
    _sql("collation in a measure", "SELECT * " + MATCH.format(COLLATE, "", "", "A AS flag")),
    _sql("collation of an order", f"SELECT k FROM s ORDER BY k COLLATE '{MACRO}'"),
    _sql(
        "unit of EXTRACT",
        'SELECT extract("year FROM at), version(), extract(year" FROM at) FROM s',
        True,
    ),
    _sql(
        "parameters of a type",
        'SELECT 1::DECIMAL("10, 2)), version(), CAST(2 AS DECIMAL(10", 2)',
        True,
    ),
    _sql("units of an interval", "SELECT INTERVAL '1' YEAR TO \"MONTH; select 1\"", True),
    _sql("type of a join", 'SELECT * FROM s JOIN BY (TYPE "INNER; select 1") s o USING (t)', True),
    _sql("copy to memory", "COPY (SELECT 1) TO ':memory:'", True),
    _sql(
        "copy in a collation",
        "SELECT 'a' COLLATE 'nocase; copy (select 1) to '':memory:''; select 1'",
    ),
    _sql("attach in a collation", "SELECT 'a' COLLATE 'nocase; attach ''x.db''; select 1'"),
    _sql("settings", "SELECT current_setting('home_directory')", True),
    _sql("environment", "SELECT getenv('PATH')", True),
    _sql("file as a table", "SELECT * FROM '/etc/passwd'", True),
    _sql("file functions", "SELECT * FROM read_text('/etc/passwd')", True),
    _sql("catalogue", "SELECT * FROM duckdb_functions()", True),
    _sql("catalogue by name", "SELECT * FROM system.information_schema.tables", True),
    _sql("catalogue beside ours", "SELECT * FROM information_schema.key_column_usage", True),
    _sql("another's stream", "SELECT * FROM vault_of_others", True),
    _sql("another's stream in a subquery", "SELECT (SELECT max(k) FROM vault_of_others)", True),
    _sql(
        "another's stream under a name",
        "WITH s AS (SELECT * FROM vault_of_others) SELECT * FROM s",
        True,
    ),
    _sql("DESCRIBE of another's stream", "DESCRIBE vault_of_others", True),
    _sql("a misspelt name", "SELECT * FROM vault_of_other", True),
    _sql("names of streams", "SHOW STREAMS"),
    # -- what ends DuckDB for everybody --------------------------------------------------------
    _sql("reservoir", "SELECT reservoir_quantile(x::HUGEINT, 0.5, 2147483647) FROM s"),
    _sql("reservoir of integers", "SELECT reservoir_quantile(t, 0.5, 2147483647) FROM s"),
    _sql("bits", "SELECT bitstring('1', 2147483647)"),
    # -- memory and time -----------------------------------------------------------------------
    Attack("lambdas", lambda: _lambdas(20)),
    Attack("BETWEEN in BETWEEN", lambda: f"SELECT {_betweens(30)} FROM s"),
    Attack("BETWEEN explained", lambda: f"EXPLAIN SELECT {_betweens(30)} FROM s"),
    _sql("range by method", "SELECT len((-100000000).range(1))"),
    _sql("range of ranges", "SELECT len(flatten(list_transform(range(10000), q -> range(10000))))"),
    _sql("resize by method", "SELECT len([1].list_resize(1000000000))"),
    _sql("printf width", "SELECT length(printf('%1000000000d', 1))"),
    _sql("format width", "SELECT length(format('{:>1000000000}', 1))"),
    _sql("strftime width", f"SELECT length(strftime(at, '{'%Y' * 100_000}')) FROM s"),
    _sql("lpad by method", "SELECT length('a'.lpad(1000000000, 'b'))"),
    _sql("repeat by method", "SELECT length('a'.repeat(1000000000))"),
    _sql("repeat of repeat", "SELECT length(repeat(repeat(repeat('a', 1000), 1000), 1000))"),
    _sql("bitstring", "SELECT bit_length(bitstring('1', 1000000000))"),
    _sql("edit distance", "SELECT damerau_levenshtein(repeat('a', 60000), repeat('b', 60000))"),
    _sql("quantiles", "SELECT quantile(x, list_transform(range(10000000), q -> 0.5)) FROM s"),
    _sql(
        "growing replacement",
        "SELECT length(regexp_replace(repeat('a', 10000), 'a', repeat('b', 100000), 'g'))",
    ),
    _sql(
        "matches without number",
        "SELECT count(*) "
        + MATCH.format("t", " X* B", "EVENT SELECTION SKIP TILL ANY MATCH", "A AS TRUE, X AS TRUE"),
    ),
    _sql("a join without condition", "SELECT count(*) FROM s a, s b, s c, s d, s e, s f, s g"),
    _sql("a series", "SELECT count(*) FROM range(1000000000000)"),
    _sql("two series", "SELECT max(a.range + b.range) FROM range(1000000) a, range(1000000) b"),
    _sql(
        "strings in groups",
        "SELECT count(*) FROM (SELECT DISTINCT repeat('a', range % 9999) FROM range(1000000))",
    ),
    _sql(
        "recursion", "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r) SELECT * FROM r"
    ),
    Attack("4 MB of additions", lambda: "SELECT 1" + "+1" * 2_000_000),
    Attack("4 MB of parentheses", lambda: "SELECT " + _nested("(", "1", ")", 1_900_000)),
    Attack("1,000 parentheses", lambda: "SELECT " + _nested("(", "1", ")", 1000)),
    Attack("4 MB of NOT", lambda: "SELECT " + "NOT " * 1_000_000 + "TRUE"),
    Attack("4 MB of brackets", lambda: "SELECT " + _nested("[", "1", "]", 1_900_000)),
    Attack("700 conditions", lambda: "SELECT t FROM s WHERE " + " AND ".join(["x > 1"] * 700)),
    Attack("8,000 columns", lambda: "SELECT " + ", ".join(["x"] * 8000) + " FROM s"),
    Attack(
        "8,000 named columns",
        lambda: "SELECT " + ", ".join(f"x AS c{n}" for n in range(8000)) + " FROM s",
    ),
    Attack(
        "a hundred brackets of a type", lambda: "SELECT CAST(NULL AS INTEGER" + "[]" * 100 + ")"
    ),
    Attack(
        "a large IN", lambda: f"SELECT t FROM s WHERE t IN ({', '.join(map(str, range(300000)))})"
    ),
    Attack("many unions", lambda: " UNION ALL ".join(["SELECT 1"] * 5000)),
    Attack(
        "many joins",
        lambda: "SELECT 1 FROM s" + "".join(f" JOIN s s{n} USING (t)" for n in range(300)),
    ),
    Attack("many cases", lambda: "SELECT CASE" + " WHEN x > 1 THEN 1" * 50000 + " END FROM s"),
    Attack("nested subqueries", lambda: _nested("SELECT * FROM (", "SELECT 1", ") q", 300)),
    _sql(
        "a long pattern",
        "SELECT count(*) " + MATCH.format("t", " B{1,1000}" * 100, "", "A AS flag"),
    ),
    _sql(
        "pattern of loops",
        "SELECT count(*) " + MATCH.format("t", " ((B*)*)*" * 20, "", "A AS flag"),
    ),
    _sql(
        "PERMUTE of many",
        "SELECT count(*) FROM s MATCH_RECOGNIZE (ORDER BY t PATTERN (PERMUTE("
        + ", ".join(f"V{n}" for n in range(12))
        + ")))",
    ),
    _sql("a lone surrogate", "SELECT '\ud800'"),
    _sql("a lone surrogate as a name", 'SELECT x AS "\ud800" FROM s'),
    _sql("a zero byte", "SELECT 'a\x00b', length('a\x00b')"),
    # -- hints, which are comments to everybody else --------------------------------------------
    _sql("a key that is missing", "SELECT {: 1}", True),
    _sql("a key and a value that are missing", "SELECT {'a': 1, :}", True),
    _sql("an open hint", "SELECT /*+ strategy(replay */ t FROM s"),
    _sql("a hint with brackets", "SELECT /*+ strategy(replay) [1]*/ t FROM s"),
    _sql("a hint of text", "SELECT /*+ strategy('../etc/passwd' */ t FROM s"),
    _sql("a hint of parentheses", "SELECT /*+(((((((((( strategy */ t FROM s"),
    # -- aggregates whose arguments were parsed a second time ------------------------------------
    _sql("DISTINCT of two", "SELECT list(DISTINCT x, translate(raw)) FROM s"),
    _sql(
        "DISTINCT of a lambda", "SELECT string_agg(DISTINCT k, list_transform([1], q -> t)) FROM s"
    ),
    _sql("DISTINCT and too many", "SELECT kahan_sum(DISTINCT x, pi(NULL)) FROM s"),
]


# -- bodies ----------------------------------------------------------------------------------------


def _stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _offsets(*offsets: int, values: bytes = b"abcdefgh", null: bool = False) -> bytes:
    """An Arrow stream with a BLOB column of these offsets over eight bytes."""
    right = [0, 2, 4, 6, 8]
    texts = [values[a:b] for a, b in itertools.pairwise(right)]
    if null:
        texts[-1] = None  # type: ignore[call-overload]
        right[-1] = 6
    table = pa.table({"t": pa.array([1, 2, 3, 4]), "raw": pa.array(texts, pa.binary())})
    head, _, tail = _stream(table).rpartition(struct.pack("<5i", *right))
    return head + struct.pack("<5i", *offsets) + tail


def _text(raw: bytes) -> bytes:
    """An Arrow stream whose column k holds these eight bytes as a string."""
    table = pa.table({"t": [1], "k": ["PLACEHOL"]})
    return _stream(table).replace(b"PLACEHOL", raw)


def _parquet(rows: int) -> bytes:
    """A few hundred bytes that say how many equal rows they are."""
    sink = io.BytesIO()
    column = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([1]))
    parquet.write_table(
        pa.table({"t": column.dictionary_decode()}), sink, compression="zstd", row_group_size=rows
    )
    return sink.getvalue()


def _parquet_dictionary() -> bytes:
    """Rows that are one value of a megabyte each."""
    sink = io.BytesIO()
    raw = pa.DictionaryArray.from_arrays(np.zeros(8192, np.int32), pa.array([b"x" * (1 << 20)]))
    parquet.write_table(pa.table({"t": range(8192), "raw": raw}), sink, compression="zstd")
    return sink.getvalue()


def _wide_json(keys: int) -> bytes:
    return ("[{" + ", ".join(f'"k{n}": 1' for n in range(keys)) + "}]").encode()


BODIES = [
    Attack("NDJSON null", lambda: b"null", True, "ndjson"),
    Attack("NDJSON null between", lambda: b'{"t": 1}\nnull\n{"t": 2}\n', True, "ndjson"),
    Attack("JSON null", lambda: b"null", True, "json"),
    Attack("JSON nulls", lambda: b"[null, null]", True, "json"),
    Attack("10,000 brackets", lambda: b"[" * 10_000, True, "json"),
    Attack("10,000 brackets a line", lambda: b"[" * 10_000 + b"\n", True, "ndjson"),
    Attack(
        "10,000 levels",
        lambda: b'{"t": 1, "k": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        True,
        "ndjson",
    ),
    Attack(
        "500 levels", lambda: b'{"t": 1, "k": ' + b"[" * 500 + b"]" * 500 + b"}", True, "ndjson"
    ),
    Attack(
        "500 objects",
        lambda: b'{"t": 1, "k": ' + b'{"a":' * 500 + b"1" + b"}" * 501,
        True,
        "ndjson",
    ),
    Attack("offset beyond", lambda: _offsets(0, 2, 20_000_000, 6, 8), True, "arrow"),
    Attack("offset below", lambda: _offsets(0, -1, 4, 6, 8), True, "arrow"),
    Attack("offsets decrease", lambda: _offsets(0, 6, 4, 6, 8), True, "arrow"),
    Attack("first offset", lambda: _offsets(-4, 2, 4, 6, 8), True, "arrow"),
    Attack(
        "null behind", lambda: _offsets(0, 2, 4, 20_000_000, 20_000_000, null=True), True, "arrow"
    ),
    Attack(
        "null behind a middle", lambda: _offsets(0, 2, 4, 20_000_000, 6, null=True), True, "arrow"
    ),
    Attack("no UTF-8", lambda: _text(b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8"), True, "arrow"),
    Attack("half a character", lambda: _text(b"abcdefg\xc3"), True, "arrow"),
    Attack("Parquet of equal rows", lambda: _parquet(30_000_000), False, "parquet", status=413),
    Attack("a Parquet dictionary", _parquet_dictionary, True, "parquet", status=413),
    Attack("1e400", lambda: b'{"t": 1, "x": 1e400}\n', True, "ndjson"),
    Attack("half a pair", lambda: b'{"t": 1, "k": "\\ud800"}\n', True, "ndjson"),
    Attack(
        "Arrow of zeros",
        lambda: _stream(pa.table({"t": np.zeros(20_000_000, np.int64)}), "zstd"),
        False,
        "arrow",
        status=413,
    ),
    Attack(
        "NDJSON of new keys",
        lambda: "".join(f'{{"t": {n}, "k{n}": 1}}\n' for n in range(100_000)).encode(),
        True,
        "ndjson",
        status=413,
    ),
    Attack(
        "CSV of 100,000 columns",
        lambda: (",".join(f"c{n}" for n in range(100_000)) + "\n").encode(),
        True,
        "csv",
        status=413,
    ),
    Attack("JSON of a million keys", lambda: _wide_json(1_000_000), True, "json", status=413),
    Attack(
        "gzip of zeros",
        lambda: gzip.compress(b"\n" * (1 << 28), 1),
        False,
        "ndjson",
        "gzip",
        status=413,
    ),
    Attack(
        "zstd of zeros",
        lambda: pa.compress(b"[" * (1 << 28), "zstd", asbytes=True),
        True,
        "json",
        "zstd",
    ),
    Attack("no end of gzip", lambda: gzip.compress(b'{"t": 1}')[:-6], True, "ndjson", "gzip"),
]
