"""Every operator over events at the ends of 64-bit time gives what it gives elsewhere."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database
from chronicle.errors import ResourceLimit, SqlError

from .. import borders
from ..borders import BORDERS, HIGH, LOW, PLAIN
from ..patience import PATIENCE_S
from ..rounds import LONG, rounds

SEEDS = rounds(4, 40, 1000)
QUERIES_A_SEED = rounds(20, 60)
TIMES = {"t", "f", "l", "g", "u", "window_start", "window_end"}

MATCH = (
    "SELECT * FROM s MATCH_RECOGNIZE ({part} ORDER BY t MEASURES FIRST(t) AS f, LAST(t) AS l, "
    "count(*) AS n {skip} PATTERN ({pattern}) {within} {selection} DEFINE {define})"
)
PATTERNS = {
    "A B": "A AS x > 4, B AS x < 6",
    "A B+": "A AS x > 4, B AS x < PREV(x)",
    "A B? C": "A AS x > 5, C AS x < 4",
    "A B C": "A AS x > 4, C AS x < A.x",
    "A": "A AS x > 6",
}
ABSENT = {"A [^B]": "A AS x > 4, B AS x > 7", "A [^B] C": "A AS x > 4, B AS x > 7, C AS x < 5"}
SKIPS = ("", "AFTER MATCH SKIP TO NEXT ROW", "MAXIMAL MATCH", "INCREMENTAL MATCH")
SELECTIONS = ("CONTIGUOUS", "SKIP TILL NEXT MATCH", "SKIP TILL ANY MATCH")

SITUATION = (
    "SELECT * FROM s MATCH_SITUATIONS ({part} MEASURES {measures} PATTERN ({pattern}) {within} "
    "{gap} {emit} DEFINE a AS x > 5 {lasting}, b AS x < 8, c AS x > 3)"
)
RELATIONS = (
    "a OVERLAPS | MEETS | DURING | EQUALS | STARTS | FINISHES b AND c INTERSECTS b",
    "a BEFORE b AND c OVERLAPS | BEFORE | EQUALS b",
)
RECENT = "SELECT {columns} FROM s AS l RECENT {kind} JOIN s AS a ON {on} {within}"
WINDOWS = ("TUMBLE(s, t, 10)", "TUMBLE(s, t, 4)", "HOP(s, t, 4, 10)", "HOP(s, t, 10, 4)",
           "SESSION(s, t, 3)", "SESSION(s, t, 3, k)", "TUMBLE_ROWS(s, 5)",
           "HOP_ROWS(s, 3, 2)")  # fmt: skip


def statements() -> Iterator[str]:
    """Queries of every operator; {0}, {1} and {2} are where the clusters begin."""
    parts, withins = ("", "PARTITION BY k"), ("", "WITHIN 0", "WITHIN 12", "WITHIN 40")
    for part, within, (pattern, define) in product(parts, withins, PATTERNS.items()):
        made = {"part": part, "within": within, "pattern": pattern, "define": define}
        for skip in SKIPS:
            yield MATCH.format(**made, skip=skip, selection="")
    for part, within, (pattern, define), selection in product(
        parts, withins[1:], (PATTERNS | ABSENT).items(), SELECTIONS
    ):
        if pattern in ABSENT and selection == "CONTIGUOUS":
            continue
        query = MATCH.format(
            part=part, within=within, pattern=pattern, define=define, skip="",
            selection=f"EVENT SELECTION {selection}",
        )  # fmt: skip
        yield query
        yield f"SELECT count(*) AS n FROM ({query})"
    for part, pattern, within, gap, emit, lasting in product(
        parts, RELATIONS, ("", "WITHIN 12", "WITHIN 40"), ("", "GAP 3"), ("", "EMIT ON DETECTION"),
        ("", "LASTING AT LEAST 2", "LASTING AT MOST 9"),
    ):  # fmt: skip
        measures = "STARTED(a) AS f, ENDED(a) AS l, STARTED(b) AS g, ENDED(b) AS u"
        if emit:
            measures += ", DETECTED() AS t, RELATION(a, b) AS r"
        yield SITUATION.format(part=part, pattern=pattern, within=within, gap=gap, emit=emit,
                               lasting=lasting, measures=measures)  # fmt: skip
    for kind, on, within in product(
        ("", "LEFT", "SEMI", "ANTI", "LAST 1"), ("a.k = l.k", "a.x > l.x + 3"), ("", "WITHIN 12")
    ):
        few = kind in ("SEMI", "ANTI")
        columns = "l.t, l.x" if few else "l.t, a.t AS u, l.x, a.x AS y"
        yield RECENT.format(columns=columns, kind=kind, on=on, within=within)
    for windows, keys, where in product(WINDOWS, ("", "k, "), ("", "WHERE x > 4")):
        if windows.endswith("k)") and not keys:
            continue  # sessions of two keys that end beyond the last tick have the same bounds
        # DuckDB's threads take ties in any order
        first = "first(x ORDER BY t, x)" if "_ROWS" in windows else "first(x)"
        yield (
            f"SELECT {keys}window_start, window_end, count(*) AS n, sum(x) AS x, {first} AS y, "
            f"min(t) AS t FROM {windows} {where} GROUP BY {keys}window_start, window_end"
        )
    for fill in ("'null'", "'previous'", "'linear'", "0"):
        for where in ("t >= {2}", "t < {0} + 60"):
            if fill == "'linear'" and "{0}" in where:
                continue  # between starts of windows, of which the first is cut at the first tick
            yield (
                f"SELECT window_start, count(*) AS n, max(x) AS x FROM TUMBLE(s, t, 10, "
                f"fill => {fill}) WHERE {where} GROUP BY window_start"
            )
    for operator, tick in product(
        ("<", "<=", "=", ">=", ">", "<>"), ("{0}", "{0}+1", "{1}+31", "{1}+32", "{2}+62", "{2}+63")
    ):
        yield f"SELECT t, k, x FROM s WHERE t {operator} {tick}"
        yield f"SELECT count(*) AS n, sum(x) AS x, max(t) AS t FROM s WHERE t {operator} {tick}"
    yield "SELECT t, lag(t) OVER (PARTITION BY k ORDER BY t) AS u FROM s"
    yield "SELECT s.t, r.t AS u FROM s ASOF JOIN s AS r ON s.k = r.k AND s.t > r.t"
    yield (
        "SELECT k, count(*) AS n, min(t) AS t, max(t) AS u, last(x ORDER BY t, x) AS x FROM s "
        "GROUP BY k"
    )


STATEMENTS = tuple(statements())
CHANGES = (
    "DELETE FROM s WHERE t >= {0} AND t <= {0} + 1",
    "DELETE FROM s WHERE t > {2} + 61",
    "DELETE FROM s WHERE t = {1} + 31 OR x = 9",
    "UPDATE s SET x = x + 1 WHERE t >= {2} + 62",
    "UPDATE s SET x = 7 WHERE k = 'b' AND t < {1} + 40",
    "INSERT INTO s VALUES ({0}, 'a', 6), ({2} + 63, 'b', 2), ({1}, 'a', 5)",
    "INSERT INTO s SELECT * FROM s WHERE t < {1}",
)
"""Some come late, and some are followed by compaction."""


def placed(text: str, bases: tuple[int, ...], stream: str) -> str:
    """A statement over a stream whose clusters begin at some ticks."""
    text = re.sub(r"((?:FROM|JOIN|INTO|UPDATE) |\()s\b", rf"\1{stream}", text)
    text = text.replace(" s.", f" {stream}.")
    for number, base in enumerate(bases):
        text = text.replace(f"{{{number}}}", str(base))
    return text


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Database, Database]]:
    """For the events at the borders, and for the others."""
    root = tmp_path_factory.mktemp("borders")
    with chronicle.open(root / "borders") as there, chronicle.open(root / "plain") as here:
        yield there, here


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_answer_does_not_depend_on_when(databases: tuple[Database, Database], seed: int) -> None:
    rng = random.Random(seed)
    events = borders.history(rng, rng.choice([3, 5, 8]))
    changes = rng.sample(CHANGES, rng.choice([0, 1, 3]))
    for db, bases in zip(databases, (BORDERS, PLAIN), strict=True):
        retention = "40" if seed % 4 == 3 else None
        stream = db.create_stream(f"s{seed}", borders.SCHEMA, time="t", retention=retention)
        stream.append(borders.events_at(bases, events[:7]))
        stream.append(borders.events_at(bases, events[7:]))
        if seed % 2:
            stream.seal()
            stream.create_index("x")
        for change in changes:
            db.sql(placed(change, bases, f"s{seed}"))
        if seed % 4 > 1:
            stream.compact()
    for query in rng.sample(STATEMENTS, QUERIES_A_SEED):
        strategy = rng.choice(["auto", "replay", "index"]) if "MATCH_" in query else "auto"
        hinted = query.replace("SELECT ", f"SELECT /*+ strategy({strategy}) */ ", 1)
        found = []
        for db, bases in zip(databases, (BORDERS, PLAIN), strict=True):
            text = placed(hinted, bases, f"s{seed}")
            table = db.sql(text, timeout=PATIENCE_S).arrow()
            found.append(borders.elsewhere(table, TIMES, held=bases is PLAIN))
        assert found[0] == found[1], (seed, hinted, changes, events)


# ------------------------------------------------------------------------------ by each unit

UNITS = (None, "s", "ms", "us", "ns")
SOME_UNITS = UNITS if LONG else (None, "ns")


def stream_of(db: Database, unit: str | None, ticks: list[int], xs: list[int]) -> None:
    times = pa.array(ticks, pa.int64())
    if unit is not None:
        times = times.cast(pa.timestamp(unit))
    table = pa.table({"t": times, "x": pa.array(xs, pa.int64())})
    db.create_stream("s", table.schema, time="t")
    db.stream("s").append(table)


def ticks_of(table: pa.Table) -> list[tuple[int, ...]]:
    return list(zip(*(c.cast(pa.int64()).to_pylist() for c in table.columns), strict=True))


def span(unit: str | None, ticks: int) -> str:
    """So many ticks, at least; of nanoseconds a microsecond is the least that SQL can say."""
    if unit is None:
        return str(ticks)
    word = {"s": "SECOND", "ms": "MILLISECOND", "us": "MICROSECOND", "ns": "MICROSECOND"}[unit]
    return f"INTERVAL '{ticks}' {word}"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with chronicle.open(tmp_path / "s") as made:
        yield made


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("selection", ["", *(f"EVENT SELECTION {s}" for s in SELECTIONS)])
def test_pairs_at_both_ends(db: Database, unit: str | None, selection: str) -> None:
    """The pairs of neighbours at the borders are there; a pair of both ends is never near."""
    ticks = [LOW, LOW + 1, -1, 0, HIGH - 1, HIGH]
    stream_of(db, unit, ticks, [9, 1] * 3)
    clause = (
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f, LAST(t) AS l "
        f"PATTERN (A B) WITHIN {span(unit, 1)} {selection} DEFINE A AS x > 5, B AS x < 5)"
    )
    pairs = [(LOW, LOW + 1), (-1, 0), (HIGH - 1, HIGH)]
    assert ticks_of(db.sql(clause, timeout=PATIENCE_S).arrow()) == pairs


WINDOWS = {"TUMBLE": ((1, 1), (7, 7)), "HOP": ((1, 3), (2, 3), (2, 8), (5, 2))}


@pytest.mark.parametrize("unit", SOME_UNITS)
def test_windows_at_both_ends(db: Database, unit: str | None) -> None:
    """Cut at the ends; of a slide of one tick, none begins before the first."""
    ticks, tick = [LOW, LOW + 1, -1, 0, HIGH - 1, HIGH], 1000 if unit == "ns" else 1
    stream_of(db, unit, ticks, [1] * 6)
    for name, slides in WINDOWS.items():
        for slide, size in slides:
            long, often, wanted = size * tick, slide * tick, Counter[tuple[int, ...]]()
            for t in ticks:
                for number in range((t - long) // often + 1, t // often + 1):
                    start = number * often
                    if slide > 1 or tick > 1 or start >= LOW:
                        wanted[number, max(start, LOW), min(start + long, HIGH)] += 1
            given = [span(unit, slide)] * (name == "HOP") + [span(unit, size)]
            call = f"{name}(s, t, {', '.join(given)}) GROUP BY window_start, window_end"
            for value in ("count(*)", "CAST(median(x) * count(*) AS BIGINT)"):
                rows = db.sql(f"SELECT window_start, window_end, {value} FROM {call}").arrow()
                assert sorted(ticks_of(rows)) == sorted(
                    (*window[1:], n) for window, n in wanted.items()
                ), (call, value)


@pytest.mark.parametrize("unit", UNITS)
def test_situations_at_both_ends(db: Database, unit: str | None) -> None:
    stream_of(db, unit, [LOW, LOW + 1, -1, 0, HIGH - 1, HIGH], [9, 1] * 3)
    clause = (
        "SELECT * FROM s MATCH_SITUATIONS (MEASURES STARTED(A) AS f, ENDED(A) AS l PATTERN (A) "
        "{emit} DEFINE A AS x > 5)"
    )
    ended = [(LOW, LOW + 1), (-1, 0), (HIGH - 1, HIGH)]
    assert ticks_of(db.sql(clause.format(emit="")).arrow()) == ended
    found = db.sql(clause.format(emit="EMIT ON DETECTION").replace("ENDED(A)", "DETECTED()"))
    assert ticks_of(found.arrow()) == [(t, t) for t, _ in ended]


@pytest.mark.parametrize("selection", ["", *(f"EVENT SELECTION {s}" for s in SELECTIONS)])
@pytest.mark.parametrize(("within", "count"), [("", 1), (f"WITHIN {HIGH}", 0)])
def test_a_difference_that_does_not_fit_is_not_within(
    db: Database, within: str, count: int, selection: str
) -> None:
    stream_of(db, None, [LOW, HIGH], [9, 1])
    clause = (
        f"SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f PATTERN (A B) "
        f"{within} {selection} DEFINE A AS x > 5, B AS x < 5)"
    )
    assert len(db.sql(clause, timeout=PATIENCE_S).fetchall()) == count


def test_a_situation_that_lasts_is_not_one_that_ends_at_the_last_tick(db: Database) -> None:
    """Of two that begin together, one ends at the greatest tick and the other does not end."""
    table = pa.table({"t": [0, HIGH], "a": [True, False], "b": [True, True]})
    db.create_stream("s", table.schema, time="t")
    db.stream("s").append(table)
    query = (
        "SELECT * FROM s MATCH_SITUATIONS (MEASURES ENDED(A) AS l, ENDED(B) AS u, "
        "RELATION(A, B) AS r PATTERN (A {relation} B) EMIT ON DETECTION "
        "DEFINE A AS a, B AS b)"
    )
    assert db.sql(query.format(relation="STARTS")).fetchall() == [(HIGH, None, "STARTS")]
    assert db.sql(query.format(relation="EQUALS")).fetchall() == []


def test_a_sum_of_times_that_does_not_fit_says_where(db: Database) -> None:
    stream_of(db, None, [LOW, HIGH], [9, 1])
    with pytest.raises(SqlError, match=r"(?i)overflow.*line 1"):
        db.sql("SELECT t - 5 AS u FROM s").fetchall()


@pytest.mark.parametrize("unit", ["s", "ms"] if LONG else ["s"])
def test_a_time_that_the_executor_cannot_show_is_named(db: Database, unit: str) -> None:
    """Its cast to text ends the executor, which is started anew."""
    stream_of(db, unit, [0, HIGH - 1], [9, 1])
    for expression in ("t::VARCHAR", "max(t) - min(t)"):
        with pytest.raises(SqlError, match="Could not convert Timestamp") as raised:
            db.sql(f"SELECT {expression} AS v FROM s").fetchall()
        assert "$" not in str(raised.value)
    assert db.sql("SELECT count(*) FROM s WHERE x + x > 2").fetchall() == [(1,)]


CLAUSES = (
    "SELECT * FROM e MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f PATTERN (A B) WITHIN {} "
    "{selection} DEFINE A AS TRUE)",
    "SELECT * FROM e MATCH_SITUATIONS (MEASURES count(a.*) AS n PATTERN (a MEETS b) WITHIN {} "
    "DEFINE a AS x > 1, b AS x < 1)",
    "SELECT * FROM e MATCH_SITUATIONS (MEASURES count(a.*) AS n PATTERN (a MEETS b) "
    "DEFINE a AS x > 1 LASTING AT MOST {}, b AS x < 1)",
    "SELECT * FROM e AS l RECENT JOIN e AS a ON a.x = l.x WITHIN {}",
)


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_duration_of_more_than_64_bits_is_refused_at_its_place(db: Database, clause: str) -> None:
    for type_, most, more in (
        ("BIGINT", str(HIGH), str(HIGH + 1)),
        ("TIMESTAMP_NS", "INTERVAL '106751' DAY", "INTERVAL '106752' DAY"),
    ):
        db.sql(f"CREATE STREAM e (t {type_}, x BIGINT) TIMESTAMP BY t")
        for selection in ("", *(f"EVENT SELECTION {each}" for each in SELECTIONS)):
            assert db.sql(clause.format(most, selection=selection)).fetchall() == []
            text = clause.format(more, selection=selection)
            with pytest.raises(SqlError, match="64 bits") as raised:
                db.sql(text).fetchall()
            assert 0 < raised.value.column - text.index(more) <= len(more)
        db.drop_stream("e")


def test_an_interval_beyond_64_bits_of_nanoseconds_is_as_long_as_it_says(db: Database) -> None:
    """The executor's Arrow intervals wrap around there."""
    table = pa.table({"t": pa.array([0, 10_000_000]).cast(pa.timestamp("ms")), "x": [9, 1]})
    db.create_stream("s", table.schema, time="t")
    db.stream("s").append(table)
    match = "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.x AS x PATTERN (A B) {})"
    for span in ("'18446744075' SECOND", "18446744075 SECOND", "'1099511627776' MILLISECOND"):
        assert db.sql(match.format(f"WITHIN INTERVAL {span}")).fetchall() == [(9,)]
        assert db.sql(match.format(f"DEFINE B AS t - A.t < INTERVAL {span}")).fetchall() == [(9,)]
        windows = f"SELECT count(*) FROM TUMBLE(s, t, INTERVAL {span}) GROUP BY window_start"
        assert db.sql(windows).fetchall() == [(2,)]
    with pytest.raises(ResourceLimit, match="292 years"):
        db.sql("SELECT INTERVAL '18446744075' SECOND").fetchall()
    with pytest.raises(SqlError, match="fixed length"):
        db.sql(match.format("WITHIN INTERVAL NULL SECOND")).fetchall()


SPANS = ((LOW, -1), (LOW, 2**62), (-5, 2**62 + 3), (0, 2**61 + 1), (0, 5), (-(2**62), 2**62))
TICKS = (1, 2**61 - 1, 2**61, 2**61 + 1, 2**62, 2**62 + 8, HIGH - 1)


@pytest.mark.parametrize(("first", "last"), SPANS)
def test_situations_last_up_to_63_bits(db: Database, first: int, last: int) -> None:
    db.sql("CREATE STREAM e (t BIGINT, x BIGINT) TIMESTAMP BY t")
    db.stream("e").append(pa.table({"t": [first, last], "x": [1, 0]}))
    for ticks in TICKS:
        for within, lasting, found in (
            ("", f"LASTING AT LEAST {ticks}", last - first >= ticks),
            ("", f"LASTING AT MOST {ticks}", last - first <= ticks),
            (f"WITHIN {ticks}", "", last - first <= ticks),
        ):
            rows = db.sql(
                "SELECT * FROM e MATCH_SITUATIONS (MEASURES count(a.*) AS n PATTERN (a EQUALS b) "
                f"{within} DEFINE a AS x = 1 {lasting}, b AS x = 1)"
            ).fetchall()
            assert rows == [(1,)] * found, (within, lasting)
