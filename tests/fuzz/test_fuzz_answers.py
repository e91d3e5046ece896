"""Random questions about events at the ends of their types, each with a judge of its own.

===========  ======================================================================================
question     judge
===========  ======================================================================================
SQL          DuckDB over the same rows; of windows, over the pairs of window and event, from Python
changes      DuckDB's DELETE and UPDATE of the same rows
ways         what went in comes out, of each format and frame, and goes in again
live         the same query ad hoc, of events that came late, too
===========  ======================================================================================

``CHRONICLE_FUZZ=20000 CHRONICLE_SEED=7 pytest -s --timeout 0 tests/fuzz/test_fuzz_answers.py`` asks
about 100 streams, many questions each; a failure names the seed of its stream.
"""

from __future__ import annotations

import contextlib
import math
import random
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import chronicle
from chronicle.core.times import INT64_MAX, INT64_MIN
from chronicle.errors import ChronicleError, UnsupportedType
from chronicle.formats.writers import encode
from chronicle.tests.fuzz.border_values import POOLS, Events, Texts, quoted
from chronicle.tests.fuzz.target import COUNT, FIRST, NIGHTLY, seed
from chronicle.tests.patience import PATIENCE_S
from chronicle.tests.reading import read_batches

STREAMS = max(1, COUNT // 200) if NIGHTLY else 1
QUESTIONS = 12 if NIGHTLY else 3
"""Of each kind about a stream."""

Row = tuple[Any, ...]


# ------------------------------------------------------------------------------------- answers


def plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else value
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [*map(plain, value)] if isinstance(value, list) else value


def rows_of(table: pa.Table) -> list[Row]:
    columns = []
    for column in table.columns:
        if pa.types.is_temporal(column.type) and not pa.types.is_duration(column.type):
            word = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
            column = column.cast(word)
        columns.append([plain(value) for value in column.to_pylist()])
    return list(zip(*columns, strict=True))


def near(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float | int):
        return one == other or math.isclose(one, other, rel_tol=1e-12)
    return bool(one == other)


def differ(found: list[Row], wanted: list[Row], *, ordered: bool = False) -> str:
    if not ordered:
        found, wanted = sorted(found, key=repr), sorted(wanted, key=repr)
    if len(found) == len(wanted):
        bad = [(a, b) for a, b in zip(found, wanted, strict=True) if not all(map(near, a, b))]
        return "" if not bad else f"{len(bad)} differ: {bad[0][0]} should be {bad[0][1]}"
    more = [row for row in found if row not in wanted][:2]
    less = [row for row in wanted if row not in found][:2]
    return f"{len(found)} rows instead of {len(wanted)}: {more} too many, {less} missing"


# ------------------------------------------------------------------------------------- windows


Windows = list[tuple[int, int, int, int]]
"""Number of an event, number of a window, its two bounds."""


def held(tick: int) -> int:
    return max(INT64_MIN, min(INT64_MAX, tick))


def hops(events: list[tuple[int, int]], slide: int, size: int) -> Windows:
    found = []
    for tick, n in events:
        start = tick // slide * slide
        while start > tick - size:
            found.append((n, 0, held(start), held(start + size)))
            start -= slide
    return found


def counted(events: list[tuple[int, int]], slide: int, size: int) -> Windows:
    found = []
    for number, at in enumerate(range(0, len(events) - size + 1, slide)):
        some = events[at : at + size]
        found += [(n, number, some[0][0], some[-1][0]) for _, n in some]
    return found


def sessions(events: list[tuple[int, int]], gap: int) -> Windows:
    groups: list[list[tuple[int, int]]] = []
    for event in events:
        if groups and event[0] - groups[-1][-1][0] <= gap:
            groups[-1].append(event)
        else:
            groups.append([event])
    return [(n, i, some[0][0], held(some[-1][0] + gap))
            for i, some in enumerate(groups) for _, n in some]  # fmt: skip


# ------------------------------------------------------------------------------------ a stream


class Asked:
    """A stream ``s`` with events of a seed, in DuckDB too."""

    def __init__(self, number: int, path: Path, **more: bool) -> None:
        self.random = random.Random(number)
        self.number, self.path = number, path / str(number)
        self.events = Events(self.random, **more)
        self.texts = Texts(self.events)
        self.db = chronicle.open(self.path, live=False)
        options = {"leaf_bytes": self.random.choice([512, 4096, 1 << 20]), "segment_bytes": 1 << 16,
                   "durability": "none"}  # fmt: skip
        self.stream = self.db.create_stream(
            "s",
            self.events.schema,
            time="t",
            options=options,
            codec=self.random.choice(["lz4", "zstd", "none"]),
        )
        self.table = self.events.schema.empty_table()
        self.duck = duckdb.connect(config={"threads": 1})
        self.duck.execute("SET TimeZone = 'UTC'")
        self.problems: list[str] = []
        for _ in range(self.random.choice([1, 2, 5])):
            self.append()
        flat = [c for c in self.events.columns if not pa.types.is_nested(self.texts.types[c])]
        for column in self.random.sample([*flat, "n"], self.random.choice([0, 0, 1])):
            with contextlib.suppress(UnsupportedType):
                self.db.sql(f"CREATE INDEX ON s ({quoted(column)})")

    def close(self) -> None:
        self.db.close()
        shutil.rmtree(self.path)
        for problem in self.problems:
            print(problem, flush=True)

    def append(self) -> None:
        r = self.random
        some = self.events.table(r.choice([1, 3, 30, 300]))
        self.stream.append(some)
        self.table = pa.concat_tables([self.table, some])
        self.duck.register("s", self.table)
        if r.random() < 0.3:
            r.choice([self.stream.flush, self.stream.seal, self.stream.compact])()

    def answer(self, sql: str, params: Any = None) -> pa.Table | str:
        try:
            return self.db.sql(sql, params, timeout=PATIENCE_S).arrow()
        except ChronicleError as error:
            return f"{type(error).__name__}: {error}"

    def judge(self, sql: str) -> list[Row] | str:
        try:
            return rows_of(self.duck.sql(sql).to_arrow_table())
        except (duckdb.Error, pa.ArrowException, OverflowError) as error:
            return str(error)

    def wrong(self, what: str, sql: str) -> None:
        self.problems.append(f"seed {self.number}: {what[:600]}\n    {sql[:1500]}")

    def check(
        self, sql: str, judge: str = "", *, ordered: bool = False, refusable: str = ""
    ) -> bool:
        wanted = self.judge(judge or sql)
        if isinstance(wanted, str):
            return False
        try:
            found = self.answer(sql)
        except Exception as error:
            self.wrong(f"{type(error).__name__} {error}", sql)
            return True
        if isinstance(found, str):
            if not (refusable and refusable in found):
                self.wrong(f"refused: {found}", sql)
        elif text := differ(rows_of(found), wanted, ordered=ordered):
            self.wrong(text, sql)
        return True

    # -- questions -----------------------------------------------------------------------------

    def filters(self) -> None:
        where = self.texts.predicate()
        self.check(f"SELECT * FROM s WHERE {where}")
        if self.check(f"SELECT count(*) FROM s WHERE {where}"):
            ticks = self.answer(f"SELECT t FROM s WHERE {where}")
            if not isinstance(ticks, str) and (rows := rows_of(ticks)) != sorted(rows):
                self.wrong("not in order of time", where)

    def totals(self) -> None:
        calls = ", ".join(self.texts.aggregate(own=True) for _ in range(3))
        self.check(f"SELECT {calls} FROM s WHERE {self.texts.span()}")
        self.check(f"SELECT {calls} FROM s WHERE {self.texts.span()} AND {self.texts.predicate(1)}")

    def groups(self) -> None:
        key = quoted(self.random.choice(self.texts.flat))
        calls = ", ".join(self.texts.aggregate(own=True) for _ in range(2))
        where = self.texts.predicate(1)
        self.check(f"SELECT {key} AS g, {calls} FROM s WHERE {where} GROUP BY {key}")
        self.check(f"SELECT DISTINCT {key} FROM s WHERE {where}")

    def orders(self) -> None:
        r = self.random
        key = quoted(r.choice(self.texts.flat))
        order = (
            f"{key} {r.choice(['', 'ASC', 'DESC'])} {r.choice(['', 'NULLS FIRST', 'NULLS LAST'])}"
        )
        limit = r.choice(["", f"LIMIT {r.choice([0, 1, 5, INT64_MAX])}"])
        offset = r.choice(["", f"OFFSET {r.choice([0, 1, 7, INT64_MAX])}"])
        where = self.texts.predicate(1)
        sql = f"SELECT {key}, n FROM s WHERE {where} ORDER BY {order}, n {limit} {offset}"
        self.check(sql, ordered=True)
        self.check(
            f"SELECT t, n FROM s WHERE {self.texts.span()} ORDER BY t, n {limit} {offset}",
            ordered=True,
        )

    def over(self) -> None:
        r = self.random
        call = r.choice(
            ["lag({}) OVER w", "lead({}, 2) OVER w", "count({}) OVER w", "max({}) OVER w",
             "first_value({}) OVER w", "rank() OVER (ORDER BY {})",
             "dense_rank() OVER (PARTITION BY {} ORDER BY n)"]
        )  # fmt: skip
        name = quoted(r.choice(self.texts.flat))
        frame = r.choice(["", "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", "ROWS 3 PRECEDING"])
        if "la" in call or "lead" in call:
            frame = ""
        part = r.choice(["", f"PARTITION BY {quoted(r.choice(self.texts.flat))}"])
        self.check(f"SELECT n, {call.format(name)} AS v FROM s WHERE {self.texts.predicate(1)} "
                   f"WINDOW w AS ({part} ORDER BY t, n {frame})")  # fmt: skip

    def joins(self) -> None:
        r = self.random
        key = quoted(r.choice(self.texts.flat))
        some = "(SELECT * FROM s WHERE n % 7 = 0)"
        kind = r.choice(["JOIN", "LEFT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"])
        one = "(SELECT * FROM s WHERE n % 5 = 1)"
        shown = "a.n" if kind in ("SEMI JOIN", "ANTI JOIN") else "a.n, b.n"
        self.check(f"SELECT {shown} FROM {one} a {kind} {some} b ON a.{key} = b.{key}")
        order = r.choice([">=", ">", "<", "<="])
        self.check(f"SELECT a.n, b.t FROM {one} a ASOF {r.choice(['', 'LEFT '])}JOIN {some} b "
                   f"ON a.k = b.k AND a.t {order} b.t")  # fmt: skip

    def sets(self) -> None:
        name = quoted(self.random.choice(self.texts.flat))
        word = self.random.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"])
        one, two = (f"SELECT {name} AS v FROM s WHERE {self.texts.predicate(1)}" for _ in "ab")
        self.check(f"{one} {word} {two}")

    def values(self) -> None:
        """A parameter is the value that a literal is."""
        column = self.random.choice(self.texts.flat)
        type_ = self.texts.types[column]
        value = self.events.value(type_)
        if value is None or pa.types.is_temporal(type_):
            return
        operator = self.random.choice(["=", "<", ">=", "<>"])
        sql = f"SELECT n FROM s WHERE {quoted(column)} {operator} $p"
        try:
            found = self.answer(sql, {"p": value})
            wanted = rows_of(self.duck.sql(sql, params={"p": value}).to_arrow_table())
        except (duckdb.Error, OverflowError):
            return
        if isinstance(found, str):
            self.wrong(f"refused: {found}", f"{sql} {value!r}")
        elif text := differ(rows_of(found), wanted):
            self.wrong(text, f"{sql} {value!r}")

    # -- windows -------------------------------------------------------------------------------

    def span(self, ticks: int) -> tuple[str, int]:
        """A length in SQL, and its ticks."""
        time = self.events.time
        if time == pa.int64():
            return str(ticks), ticks
        unit = {"s": "SECOND", "ms": "MILLISECOND", "us": "MICROSECOND", "ns": "MICROSECOND"}[
            time.unit
        ]
        return f"INTERVAL '{ticks}' {unit}", ticks * (1000 if time.unit == "ns" else 1)

    def windows(self) -> None:
        r, texts = self.random, self.texts
        where = r.choice([texts.span(), texts.predicate(1)])
        chosen = self.judge(f"SELECT t, n FROM s WHERE {where} ORDER BY t, n")
        if isinstance(chosen, str):
            return
        slide = r.choice([2, 7, 60, 1000, 2**40])
        size = min(slide * r.choice([1, 1, 2, 5]) + r.choice([0, 0, 1]), 2**42)
        (a, slide), (b, size) = self.span(slide), self.span(size)
        keyed = r.random() < 0.4
        kind = r.randrange(5)
        groups, shown = "window_start, window_end", "ws, we"
        if kind == 0:
            source, made = f"TUMBLE(s, t, {b})", hops(chosen, size, size)
        elif kind == 1:
            source, made = f"HOP(s, t, {a}, {b})", hops(chosen, slide, size)
        elif kind == 2:
            source, made, keyed = f"SESSION(s, t, {b})", sessions(chosen, size), False
        else:
            some, many = r.choice([1, 2, 5]), r.choice([1, 3, 5])
            source, made, keyed = f"HOP_ROWS(s, {some}, {many})", counted(chosen, some, many), False
            groups, shown = "window_id, window_start, window_end", "id, ws, we"
        names = ["n", "id", "ws", "we"]
        columns = zip(*made, strict=True) if made else [[]] * 4
        schema = pa.schema([(name, pa.int64()) for name in names])
        self.duck.register("w", pa.table(dict(zip(names, columns, strict=True)), schema))
        key = quoted(r.choice([c for c in texts.flat if c not in "tn"])) if keyed else ""
        calls = [texts.aggregate() for _ in range(r.choice([1, 3]))]
        theirs = list(calls)
        if r.random() < 0.3 and len({t for t, _ in chosen}) == len(chosen):  # ties: in any order
            for word in ("first", "last"):
                call = f"{word}({quoted(r.choice(texts.flat))}"
                calls.append(f"{call})")
                theirs.append(f"{call} ORDER BY t, n)")
        more = f", {key}" if keyed else ""
        hint = r.choice(["", "", "/*+ strategy(replay) */ ", "/*+ strategy(index) */ "])
        mine, judge = ", ".join([groups + more, *calls]), ", ".join([shown + more, *theirs])
        self.check(
            f"SELECT {hint}{mine} FROM {source} WHERE {where} GROUP BY {groups}{more}",
            f"SELECT {judge} FROM w JOIN s USING (n) GROUP BY {shown}{more}",
        )

    # -- changes -------------------------------------------------------------------------------

    def changes(self) -> None:
        r, texts = self.random, self.texts
        where = texts.predicate()
        self.duck.execute("CREATE OR REPLACE TABLE c AS SELECT * FROM s")
        free = [c for c in texts.flat if c not in "tn"]
        column = r.choice(free)
        value = texts.literal(texts.types[column])
        changed = f"UPDATE {{}} SET {quoted(column)} = {value} WHERE {where}"
        change = r.choice([f"DELETE FROM {{}} WHERE {where}", changed])
        try:
            self.duck.execute(change.format("c"))
            wanted: Any = self.duck.sql("SELECT * FROM c").to_arrow_table()
        except duckdb.Error:
            wanted = None
        found = self.answer(change.format("s"))
        if isinstance(found, str) and wanted is not None and "Could not convert" not in found:
            self.wrong(f"refused: {found}", change)
        if isinstance(found, str):
            wanted = self.table
        elif wanted is None:
            self.wrong("DuckDB refuses it", change)
            wanted = self.stream.scan().read_all()
        now = self.stream.scan().read_all()
        if text := differ(rows_of(now), rows_of(wanted.select(now.schema.names))):
            self.wrong(text, change)
        self.table = now.sort_by("n")
        self.duck.register("s", self.table)


SQL = (
    Asked.filters, Asked.filters, Asked.totals, Asked.totals, Asked.groups, Asked.orders,
    Asked.over, Asked.joins, Asked.sets, Asked.values, Asked.windows, Asked.windows, Asked.windows,
)  # fmt: skip


# ---------------------------------------------------------------------------- ways in and out


FLOATS = (pa.float32(), pa.float64())
INFINITE = ("nan", math.inf, -math.inf)


def taken(asked: Asked, table: pa.Table, way: str) -> Any:
    """The events of the stream on a way out, as a way in takes them."""
    result = asked.db.sql("SELECT * FROM s")
    if way in ("polars", "pandas"):
        return [result.pl() if way == "polars" else result.df()]
    if way == "rows":
        names = table.schema.names
        return [[dict(zip(names, row, strict=True)) for row in result.fetchall()]]
    content = b"".join(encode(table.to_batches(), table.schema, way))
    return read_batches(content, way, schema=asked.stream.event_schema)


def said(way: str, value: Any, type_: pa.DataType) -> Any:
    """A value as the way says it: JSON has no NaN and no infinity, pandas takes NaN for none."""
    odd = {"pandas": ("nan",), "json": INFINITE, "ndjson": INFINITE}.get(way, ())
    return None if type_ in FLOATS and value in odd else value


def ways(asked: Asked) -> None:
    table = asked.stream.scan().read_all()
    for way in ("ndjson", "json", "csv", "parquet", "arrow", "polars", "pandas", "rows"):
        wanted = [tuple(said(way, *pair) for pair in zip(row, table.schema.types, strict=True))
                  for row in rows_of(table)]  # fmt: skip
        again = asked.db.create_stream("r", asked.events.schema, time="t")
        try:
            for some in taken(asked, table, way):
                again.append(some)
            if text := differ(rows_of(again.scan().read_all()), wanted):
                asked.wrong(text, f"{way} {table.schema}")
        except Exception as error:
            asked.wrong(f"{type(error).__name__} {error}", f"{way} {table.schema}")
        asked.db.drop_stream("r")


def test_what_comes_out_goes_in(tmp_path: Path) -> None:
    problems: list[str] = []
    for number in streams("ways"):
        asked = Asked(number, tmp_path, nested=number % 2 == 0)
        ways(asked)
        asked.close()
        problems += asked.problems
    assert not problems, "\n".join(problems[:20])


# ------------------------------------------------------------------------- live and strategies


def clauses(asked: Asked) -> Iterator[str]:
    """Queries that may be live; no event with a negative number counts."""
    r, texts = asked.random, asked.texts
    key, other = (quoted(r.choice(texts.flat)) for _ in "ab")
    few, many = asked.span(r.choice([1, 3, 5]))[0], asked.span(r.choice([5, 12, 40]))[0]
    one, two = (f"({texts.predicate(1)} OR n % 3 = {i}) AND n >= 0" for i in range(2))
    calls = ", ".join(f"{texts.aggregate()} AS a{i}" for i in range(2))
    more = r.choice(["", f", {key}"])
    groups = f"window_start, window_end{more}"
    part = r.choice(["", f"PARTITION BY {key}"])
    yield f"SELECT t, n, {key} AS v FROM s WHERE {one}"
    source = r.choice([f"TUMBLE(s, t, {many})", f"HOP(s, t, {few}, {many})"])
    yield f"SELECT {groups}, {calls} FROM {source} WHERE {one} GROUP BY {groups}"
    yield (f"SELECT window_start, window_end, {calls} FROM SESSION(s, t, {few}) WHERE {one} "
           f"GROUP BY window_start, window_end")  # fmt: skip
    rule = r.choice(
        ["", "AFTER MATCH SKIP TO NEXT ROW", "MAXIMAL MATCH", "INCREMENTAL MATCH",
         "AFTER MATCH SKIP TO FIRST B", "AFTER MATCH SKIP TO LAST B"]
    )  # fmt: skip
    selection = r.choice(["CONTIGUOUS", "SKIP TILL NEXT MATCH", "SKIP TILL ANY MATCH"])
    selection = f"EVENT SELECTION {selection}" if not rule and r.random() < 0.5 else ""
    pattern = r.choice(["A B", "A B+", "A B? C", "A (B | C)", "A{1,2} B"])
    if "ANY" in selection:  # the number of longer matches explodes
        pattern = "A B"
    pattern = "A B" if "TO" in rule and " NEXT" not in rule else pattern
    shown = f"FIRST(n) AS f, LAST(n) AS l, LAST({key}) AS v, max({other}) AS w, count(*) AS c"
    compared = f"{other} {r.choice(['>=', '<', '=', '<>'])} {r.choice(['A.', 'PREV('])}{other}"
    compared += ")" if "PREV" in compared else ""
    yield (
        f"SELECT * FROM s MATCH_RECOGNIZE ({part} ORDER BY t MEASURES {shown} {rule} "
        f"PATTERN ({pattern}) WITHIN {many} {selection} DEFINE A AS {one}, "
        f"B AS {r.choice([two, f'n >= 0 AND {compared}'])}"
        + (f", C AS {two})" if "C" in pattern else ")")
    )
    relation = r.choice(
        ["OVERLAPS | DURING | MEETS", "BEFORE | EQUALS | STARTS", "FINISHES | CONTAINS | MET BY",
         "AFTER | STARTED BY | OVERLAPPED BY | FINISHED BY"]
    )  # fmt: skip
    yield (
        f"SELECT * FROM s MATCH_SITUATIONS ({part} MEASURES STARTED(a) AS f, STARTED(b) AS g, "
        f"count(a.*) AS c PATTERN (a {relation} b) WITHIN {many} "
        f"{r.choice(['', f'GAP {few}', 'EMIT ON DETECTION'])} "
        f"DEFINE a AS {one} {r.choice(['', f'LASTING AT LEAST {few}'])}, b AS {two})"
    )
    kind = r.choice(["", "LEFT", "SEMI", "ANTI", "LAST 1"])
    shown = "l.n" if kind in ("SEMI", "ANTI") else "l.n, a.n AS m"
    yield (f"SELECT {shown} FROM s AS l RECENT {kind} JOIN s AS a ON a.{key} = l.{key} "
           f"WITHIN {many} WHERE l.n >= 0")  # fmt: skip
    left = "(SELECT * FROM s WHERE n >= 0)"
    kind = r.choice(["", "LEFT "])
    yield (f"SELECT a.n, b.n AS m FROM {left} AS a {kind}JOIN {left} AS b ON a.{key} = b.{key} "
           f"AND b.t >= a.t - {few} AND b.t <= a.t + {few}")  # fmt: skip


def lived(asked: Asked) -> None:
    """Live queries say what the query says, and it says the same by each strategy."""
    r, events = asked.random, asked.events
    queries = {}
    for number, query in enumerate(clauses(asked)):
        with contextlib.suppress(ChronicleError):
            asked.db.create_live(f"l{number}", query, idle="never")
            queries[f"l{number}"] = query
    for _ in range(3):
        asked.append()
        asked.db.run_live()
        if r.random() < 0.3:
            with contextlib.suppress(ChronicleError):
                asked.stream.delete(asked.texts.predicate())
    last = min(max(POOLS[events.time]), events.base + 10**6)
    end = events.table(1).set_column(0, "t", pa.array([last]).cast(events.time))
    end = end.set_column(1, "n", pa.array([-1]))
    asked.stream.append(end.cast(events.schema))
    asked.db.run_live()
    for name, query in queries.items():
        answer = asked.answer(query)
        error = asked.db.live(name).status()["error"]
        if isinstance(answer, str) or error is not None:
            at_an_end = isinstance(answer, str) and "Overflow" in answer  # live has wider bounds
            skipped = "Could not convert" in (error or "")  # rows that only a plan leaves out
            if not at_an_end and not skipped and (not isinstance(answer, str) or error is None):
                asked.wrong(f"live: {error}, ad hoc: {str(answer)[:200]}", query)
            continue
        wanted = rows_of(answer)
        net = asked.answer(f"SELECT * EXCLUDE (_time, _id, _rev) FROM NET({name})")
        if text := differ(rows_of(net), wanted):
            asked.wrong(f"live: {text}", query)
        if asked.db.live(name).verify():
            asked.wrong("live: does not verify", query)
        for strategy in ("replay", "index", "all"):
            hinted = asked.answer(query.replace("SELECT", f"SELECT /*+ strategy({strategy}) */", 1))
            if not isinstance(hinted, str) and (text := differ(rows_of(hinted), wanted)):
                asked.wrong(f"{strategy}: {text}", query)


def test_live_queries_say_what_the_query_says(tmp_path: Path) -> None:
    problems: list[str] = []
    for number in streams("live"):
        asked = Asked(number, tmp_path, calm=True)
        lived(asked)
        asked.close()
        problems += asked.problems
    assert not problems, "\n".join(problems[:20])


def streams(kind: str) -> Iterator[int]:
    for number in range(FIRST, FIRST + STREAMS):
        yield (seed() << 32) + number
        if NIGHTLY and number % 50 == 49:
            print(f"{kind}: {number + 1} streams (seed {seed()})", flush=True)


def test_answers_are_those_of_duckdb(tmp_path: Path) -> None:
    problems: list[str] = []
    for number in streams("SQL"):
        asked = Asked(number, tmp_path)
        for _ in range(QUESTIONS * 3):
            asked.random.choice(SQL)(asked)
            if asked.random.random() < 0.05:
                asked.append()
        asked.close()
        problems += asked.problems
    assert not problems, "\n".join(problems[:20])


def test_changes_are_those_of_duckdb(tmp_path: Path) -> None:
    problems: list[str] = []
    for number in streams("changes"):
        asked = Asked(number, tmp_path)
        for _ in range(QUESTIONS):
            asked.changes()
            if asked.random.random() < 0.5:
                asked.append()
        asked.close()
        problems += asked.problems
    assert not problems, "\n".join(problems[:20])
