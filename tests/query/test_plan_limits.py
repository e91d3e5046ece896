"""What reading and planning a statement costs: about linear in its length, within its time limit.

The cost is the number of functions that are called: reading and planning are recursive Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

import chronicle
from chronicle.api.database import Database, catalog_of
from chronicle.errors import ChronicleError, QueryCancelled, QueryTimeout, SqlError
from chronicle.query.contract.cancellation import Cancellation, QueryControl, alone, checked_by
from chronicle.query.plan.prepared import PreparedQuery
from chronicle.query.sql.dialect import Chronicle
from chronicle.tests.patience import PATIENCE_S
from chronicle.tests.query.calls import calls_of

WORDS = 400
REFUSED_CALLS = 4_000_000
ENDED_CALLS = 300_000


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with chronicle.open(tmp_path_factory.mktemp("plans")) as database:
        database.sql(
            "CREATE STREAM s (t BIGINT, k VARCHAR, x DOUBLE, at TIMESTAMP, flag BOOLEAN)"
            " TIMESTAMP BY t"
        )
        database.sql("INSERT INTO s VALUES (1, 'a', 1, TIMESTAMP '2026-01-01', TRUE)")
        for sql in (
            "SELECT k, count(*) FROM s WHERE x > 3 GROUP BY k",
            "SELECT count(*) FROM s MATCH_RECOGNIZE (ORDER BY t PATTERN (A B) DEFINE A AS x > 1)",
            "SELECT window_start, sum(x) FROM TUMBLE(s, t, 10) GROUP BY window_start",
        ):
            database.sql(sql).arrow()
        yield database


def match(pattern: str, define: str = "A AS x > 1", measures: str = "") -> str:
    return (
        f"SELECT count(*) FROM s MATCH_RECOGNIZE (ORDER BY t {measures} PATTERN ({pattern}) "
        f"DEFINE {define})"
    )


def joined(piece: str, count: int, by: str = ", ") -> str:
    """A piece many times; ``#`` in it is its number."""
    return by.join(piece.replace("#", str(i)) for i in range(count))


TEXT = "'v#'"
EXISTS = "EXISTS (SELECT 1 FROM s q WHERE q.t = s.t)"

FAMILIES: dict[str, Callable[[int], str]] = {
    "conditions by AND": lambda n: f"SELECT t FROM s WHERE {joined('x > #', n // 4, ' AND ')}",
    "conditions by OR": lambda n: f"SELECT t FROM s WHERE {joined('k = #', n // 4, ' OR ')}",
    "ranges": lambda n: f"SELECT t FROM s WHERE {joined('t BETWEEN # AND #', n // 6, ' OR ')}",
    "groups": lambda n: (
        f"SELECT t FROM s WHERE {joined('(x > # OR flag)', n // 8, ' AND ')}"
    ),
    "IN": lambda n: f"SELECT t FROM s WHERE t IN ({joined('#', n // 2)})",
    "IN of texts": lambda n: f"SELECT t FROM s WHERE k NOT IN ({joined(TEXT, n // 2)})",
    "CASE": lambda n: f"SELECT CASE {joined('WHEN x > # THEN 1', n // 6, ' ')} END FROM s",
    "CASE of a value": lambda n: f"SELECT CASE x {joined('WHEN # THEN 1', n // 4, ' ')} END FROM s",
    "columns": lambda n: f"SELECT {joined('x', n // 2)} FROM s",
    "named columns": lambda n: f"SELECT {joined('x AS c#', n // 4)} FROM s",
    "aggregates": lambda n: f"SELECT {joined('sum(x) AS c#', n // 7)} FROM s WHERE t > 5",
    "aggregates of expressions": lambda n: f"SELECT {joined('sum(x + #) AS c#', n // 9)} FROM s",
    "keys": lambda n: f"SELECT count(*) FROM s GROUP BY {joined('x + #', n // 4)}",
    "order": lambda n: f"SELECT t FROM s ORDER BY {joined('x + #', n // 4)}",
    "having": lambda n: (
        f"SELECT k FROM s GROUP BY k HAVING {joined('sum(x) > #', n // 7, ' AND ')}"
    ),
    "rows": lambda n: f"SELECT * FROM (VALUES {joined('(#, 1)', n // 6)}) v(a, b)",
    "list": lambda n: f"SELECT [{joined('#', n // 2)}]",
    "struct": lambda n: f"SELECT {{{joined(TEXT + ': 1', n // 4)}}}",
    "arguments": lambda n: f"SELECT greatest({joined('x', n // 2)}) FROM s",
    "sum of calls": lambda n: f"SELECT {joined('abs(x)', n // 5, ' + ')} FROM s",
    "methods": lambda n: f"SELECT x{'.abs()' * (n // 4)} FROM s",
    "methods of a long operand": lambda n: (
        f"SELECT ({joined('x', n // 4, ' + ')}){'.abs()' * (n // 8)} FROM s"
    ),
    "fields": lambda n: f"SELECT x{'.a' * (n // 2)} FROM s",
    "casts": lambda n: f"SELECT x{'::INT' * (n // 2)} FROM s",
    "subscripts": lambda n: f"SELECT k{'[1]' * (n // 3)} FROM s",
    "sums": lambda n: f"SELECT 1{'+1' * (n // 2)}",
    "NOT": lambda n: f"SELECT {'NOT ' * n} TRUE",
    "unions": lambda n: joined("SELECT #", n // 4, " UNION ALL "),
    "joins": lambda n: f"SELECT 1 FROM s {joined('JOIN s s# USING (t)', n // 8, ' ')}",
    "cross joins": lambda n: f"SELECT 1 FROM s, {joined('s s#', n // 3)}",
    "CTEs": lambda n: f"WITH {joined('c# AS (SELECT t FROM s)', n // 9)} SELECT 1 FROM c1",
    "chain of CTEs": lambda n: "WITH c0 AS (SELECT 1 a)"
    + "".join(f", c{i + 1} AS (SELECT a FROM c{i})" for i in range(n // 9))
    + " SELECT * FROM c1",
    "subqueries": lambda n: f"SELECT {joined('(SELECT max(x) FROM s)', n // 10)}",
    "EXISTS": lambda n: (
        f"SELECT t FROM s WHERE {joined(EXISTS, n // 17, ' AND ')}"
    ),
    "windows of SQL": lambda n: f"SELECT {joined('sum(x) OVER (ORDER BY t) c#', n // 12)} FROM s",
    "lambdas": lambda n: f"SELECT {joined('list_transform([1], q -> q + #)', n // 12)}",
    "parameters": lambda n: f"SELECT {joined('$p#', n // 3)}",
    "EXCLUDE": lambda n: f"SELECT * EXCLUDE ({joined('c#', n // 2)}) FROM s",
    "TUMBLE": lambda n: (
        f"SELECT {joined('sum(x) AS c#', n // 7)} FROM TUMBLE(s, t, 10) GROUP BY window_start"
    ),
    "conditions on TUMBLE": lambda n: (
        f"SELECT count(*) FROM TUMBLE(s, t, 10) WHERE {joined('x > #', n // 4, ' AND ')} "
        "GROUP BY window_start"
    ),
    "DEFINE": lambda n: match("A", f"A AS {joined('x > #', n // 4, ' AND ')}"),
    "DEFINE by OR": lambda n: match("A", f"A AS {joined('x = #', n // 4, ' OR ')}"),
    "DEFINE of PREV": lambda n: match("A", f"A AS {joined('x > PREV(x, 3)', n // 9, ' AND ')}"),
    "variables": lambda n: match(joined("V#", n // 7, " "), joined("V# AS x > #", n // 7)),
    "a variable again": lambda n: match("A " * n),
    "alternatives": lambda n: match("A" + " | A" * (n // 2)),
    "measures": lambda n: match("A+", measures=f"MEASURES {joined('A.x AS m#', n // 6)}"),
    "subsets": lambda n: (
        "SELECT count(*) FROM s MATCH_RECOGNIZE (ORDER BY t PATTERN (A B) SUBSET "
        f"{joined('S# = (A, B)', n // 8)} DEFINE A AS x > 1)"
    ),
}  # fmt: skip


def refusal(database: Database, text: str, timeout: float | None = None) -> Exception | None:
    """Read and plan a query up to where it could begin; why it may not."""
    engine = catalog_of(database).engine
    try:
        control = QueryControl(timeout)
        read = engine._read(text, control, None)
        assert isinstance(read, PreparedQuery)
        values = dict.fromkeys(read.parameters, 1) or None
        with engine.careful(text, control):
            engine._planning(read, values, control)
    except ChronicleError as refused:
        return refused
    return None


@pytest.mark.parametrize("family", FAMILIES)
def test_four_times_the_words_take_about_four_times_as_long(
    database: Database, family: str
) -> None:
    once, more = (
        calls_of(lambda: refusal(database, FAMILIES[family](words)))  # noqa: B023
        for words in (WORDS, 4 * WORDS)
    )
    assert more <= 5.5 * once


@pytest.mark.parametrize(  # longer texts: test_hostile_statements.py
    "text",
    [
        match("A{1,1000000}"),
        "SELECT " + "NOT " * 90_000 + "TRUE",
        "SELECT CASE" + " WHEN x > 1 THEN 1" * 50_000 + " END FROM s",
        match("A* " * 2_000),
        match("PERMUTE(" + ", ".join(f"V{i}" for i in range(400)) + ")"),
        match("(A? B?){1,2000}"),
        f"SELECT t FROM s WHERE t IN ({', '.join(map(str, range(300_000)))})",
    ],
    ids=lambda text: f"{text[:24]}... {len(text)}",
)
def test_what_is_too_much_is_refused_soon(database: Database, text: str) -> None:
    errors: list[Exception | None] = []
    assert calls_of(lambda: errors.append(refusal(database, text))) < REFUSED_CALLS
    assert errors != [None]


@pytest.mark.parametrize(
    "family", ["conditions by AND", "IN", "columns", "TUMBLE", "joins", "variables", "measures"]
)
def test_the_time_limit_holds_while_a_statement_is_planned(database: Database, family: str) -> None:
    """The slower the machine, the less is done before the limit; after it, next to nothing."""
    text = FAMILIES[family](30_000)
    errors: list[Exception | None] = []
    assert calls_of(lambda: errors.append(refusal(database, text, 0.05))) < ENDED_CALLS
    assert isinstance(errors[0], QueryTimeout)


@pytest.mark.parametrize(
    "text",
    [FAMILIES["measures"](2_000), "-- a comment\n" * 500, "/*" + "x+" * 2_000 + "*/", "\n" * 9_000],
    ids=["words", "comments", "a comment", "empty lines"],
)
def test_a_text_is_cut_into_tokens_under_the_limits_of_its_query(text: str) -> None:
    """The first half of what reading costs, and one call of the parser's library."""
    token = Cancellation()
    token.cancel()
    with checked_by(QueryControl(cancellation=token)), pytest.raises(QueryCancelled):
        Chronicle().tokenize(text)


def test_of_long_statements_one_is_read_at_a_time(database: Database) -> None:
    """Others wait within their own limit; short ones do not wait."""
    text = FAMILIES["columns"](4_000)
    with alone(), checked_by(QueryControl()):
        errors: list[Exception | None] = []
        for asked, timeout in ((text, 0.2), ("SELECT t + 1 FROM s", PATIENCE_S)):
            thread = threading.Thread(
                target=lambda *given: errors.append(refusal(database, *given)),
                args=(asked, timeout),
            )
            thread.start()
            thread.join()
    assert isinstance(errors[0], QueryTimeout)
    assert errors[1] is None
    assert refusal(database, text) is None


def test_a_statement_is_read_once_to_be_allowed_and_run(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chronicle.query import engine

    texts: list[str] = []
    parse = engine.parse_statement

    def counted(text: str) -> object:
        texts.append(text)
        return parse(text)

    monkeypatch.setattr(engine, "parse_statement", counted)
    seen: list[tuple[str, frozenset[str]]] = []
    for sql in ("SELECT t AS once FROM s", "EXPLAIN SELECT t FROM s", "DESCRIBE SELECT t FROM s"):
        texts.clear()
        made = catalog_of(database).engine
        made.run(sql, allowed=lambda access: seen.append((access.scope, access.reads))).arrow()
        assert texts == [sql]
    assert seen == [("read", frozenset({"s"}))] * 3


def test_what_is_not_allowed_does_not_run(database: Database) -> None:
    def refuse(access: object) -> None:
        raise SqlError("not today")

    before = database.stream("s").count
    for sql in ("INSERT INTO s (t) VALUES (2)", "DROP STREAM s", "SELECT 1"):
        with pytest.raises(SqlError, match="not today"):
            catalog_of(database).engine.run(sql, allowed=refuse)
    assert database.stream("s").count == before
