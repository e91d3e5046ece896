"""SKIP TILL ANY MATCH in several threads: the rows of one thread, in its order.

The differential runs cut the work as small as it goes: pieces of one match, parts of one first
event, batches of a few matches.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import ResourceLimit, SqlError
from chronicle.query.pattern import any_diagram, any_output

from ...patience import wait_until
from ...rounds import rounds
from .any_cases import SCHEMA, compiled, paired_clause, random_table, row_clause, rows_of
from .test_match_any_lists import constant

CASES = rounds(10, 150, int(os.environ.get("CHRONICLE_PATTERNS", "20000")))


def cut_small(r: random.Random, patch: pytest.MonkeyPatch) -> None:
    """Threads for everything, pieces as small as they go."""
    patch.setattr(any_output, "ALONE_MATCHES", r.choice([-1, 2]))
    patch.setattr(any_output, "PIECE_MATCHES", r.choice([1, 2]))
    patch.setattr(any_output, "MATCHES_MAX", r.choice([1, 3, 1 << 14]))
    patch.setattr(any_output, "MATCHES_FIRST", r.choice([1, 3]))
    patch.setattr(any_diagram, "ENTRIES_FIRST", r.choice([4, 64, 1 << 13]))


@pytest.mark.usefixtures("small_buffers")
def test_threads_give_the_rows_of_one_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    used = 0
    for seed in range(CASES):
        r = random.Random(seed)
        paired = seed % 2 == 1
        clause = (paired_clause if paired else row_clause)(r, r.random() < 0.3)
        table = random_table(r, r.randint(4, 16))
        shown = (seed, clause, table.to_pylist())
        numbered = clause.replace("ALL ROWS", "ONE ROW").replace(", CLASSIFIER() AS c", "")
        plain = numbered.replace("MATCH_NUMBER() AS mn", "LAST(t) AS mn")
        for text in (clause, numbered, plain):
            try:
                expected = rows_of(compiled(text, search=True), table)
            except SqlError as error:
                assert "[^" in str(error), shown  # noqa: PT017
                break
            for batch in (2, 100):
                cut_small(r, monkeypatch)
                match = compiled(text, threads=r.randint(2, 8))
                assert repr(rows_of(match, table, batch)) == repr(expected), (batch, *shown)
                used += match.selecting.busy.threads > 1
        else:
            counted = rows_of(compiled(numbered, weighted=True, threads=3), table)
            assert sum(row["mn"] for row in counted) == len(expected), shown
            skip = r.randint(0, len(expected) + 1)
            rest = rows_of(compiled(plain, skip=skip, threads=3), table)
            assert repr(rest) == repr(expected[skip:]), (skip, *shown)
    assert used > CASES // 8


CLAUSE = (
    "ORDER BY t MEASURES A.t AS a, B.t AS b, LAST(t) AS z, MATCH_NUMBER() AS n PATTERN ({}) {} "
    "EVENT SELECTION SKIP TILL ANY MATCH {}"
)


@pytest.mark.parametrize(
    ("pattern", "window", "defined"),
    [
        ("A B C", "WITHIN 100", "DEFINE A AS t = 100"),
        ("A B+ C", "WITHIN 14", "DEFINE A AS t = 100"),
        ("A B C", "WITHIN 100", "DEFINE A AS t = 100, C AS y = A.y"),
    ],
)
def test_the_matches_of_one_first_event_are_divided(
    pattern: str, window: str, defined: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One window holds everything: threads take ranges of its matches."""
    monkeypatch.setattr(any_output, "ALONE_MATCHES", 100)
    monkeypatch.setattr(any_output, "PIECE_MATCHES", 500)
    table = constant(300)
    clause = CLAUSE.format(pattern, window, defined)
    alone = rows_of(compiled(clause), table)
    match = compiled(clause, threads=2)
    assert rows_of(match, table) == alone
    assert len(alone) in (math.comb(100, 2), 2**14 - 1 - 14)
    figures = dict(match.selecting.figures())
    assert figures["threads"] == 2
    assert figures["busiest_over_mean"] >= 1


def part_threads() -> list[str]:
    """Threads of queries that run."""
    return [one.name for one in threading.enumerate() if one.name.startswith("chronicle-part")]


def test_few_matches_start_no_thread() -> None:
    wait_until(lambda: not part_threads(), "the end of threads of other tests")
    match = compiled(CLAUSE.format("A B C", "WITHIN 9", ""), threads=8)
    stream = match.run(constant(300).to_batches())
    next(stream)
    assert not part_threads()
    assert len(list(stream)) > 0
    assert match.selecting.busy.threads == 1


def test_a_consumer_that_stops_leaves_no_thread() -> None:
    names = " ".join("ABCDEFGH")
    match = compiled(CLAUSE.format(names, "", ""), threads=3)
    stream = match.run(constant(200).to_batches())
    taken = 0
    while taken < 200_000:
        taken += next(stream).num_rows
    assert part_threads()
    assert match.selecting.busy.threads == 3
    stream.close()  # type: ignore[attr-defined]
    assert not part_threads()


def test_a_query_that_is_to_end_ends_in_every_thread() -> None:
    asked = threading.Event()

    def check() -> None:
        if asked.is_set():
            raise ResourceLimit("stopped")

    names = " ".join("ABCDEFGH")
    stream = compiled(CLAUSE.format(names, "", ""), threads=2).run(
        constant(200).to_batches(), check=check
    )
    taken = 0
    while taken < 300_000:
        taken += next(stream).num_rows
    asked.set()
    with pytest.raises(ResourceLimit, match="stopped"):
        list(itertools.islice(stream, 100))


def first_matches(names: str) -> Iterator[pa.RecordBatch]:
    """Batches with the first 400,000 matches, taken slowly."""
    match = compiled(CLAUSE.format(" ".join(names), "", ""), threads=2)
    rows = 0
    for batch in match.run(constant(100).to_batches()):
        time.sleep(0.01)
        yield batch
        rows += batch.num_rows
        if rows > 400_000:
            return


def test_memory_does_not_grow_with_the_matches_in_threads() -> None:
    """Of 4e6 and of 1e13 matches a few pieces are there at a time, however slow the taker."""
    for _ in first_matches("ABCD"):  # compiled
        pass
    # two pieces that threads work at, one that waits, one that is taken
    matches_max = 4 * any_output.PIECE_MATCHES
    for names in ("ABCD", "ABCDEFGHIJ"):
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        results = max(pa.total_allocated_bytes() - before for _ in first_matches(names))
        arrays = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert results <= matches_max * 32  # four whole numbers each
        assert arrays <= matches_max * (len(names) * 24 + 60)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    with chronicle.open(tmp_path / "db", query_threads=2) as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        stream.append(random_table(random.Random(3), 300))
        yield database


def test_statements_use_the_threads_of_the_database(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(any_output, "ALONE_MATCHES", 100)
    monkeypatch.setattr(any_output, "PIECE_MATCHES", 300)
    text = (
        "SELECT {} a, b, z, n + 1 AS n FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a, B.y + "
        "C.y AS b, LAST(x) AS z, MATCH_NUMBER() AS n PATTERN (A B C) WITHIN 20 EVENT SELECTION "
        "SKIP TILL ANY MATCH) AS m"
    )
    alone = db.sql(text.format("/*+ threads(1) */")).arrow()
    for hint in ("", "/*+ threads(3) */"):
        found = db.sql(text.format(hint)).arrow()
        assert repr(found.to_pylist()) == repr(alone.to_pylist())  # NaN is no equal of itself
    assert alone.num_rows > 3000
    shown = str(db.sql("EXPLAIN ANALYZE " + text.format("/*+ threads(3) */")).arrow().to_pylist())
    assert "threads: 3" in shown or "threads 3" in shown
    for wrong in ("threads(0)", "threads(many)", "threads(257)", "threads"):
        with pytest.raises(SqlError, match=r"threads\(n\) with n from 1 to 256"):
            db.sql(text.format(f"/*+ {wrong} */"))


def test_batches_are_put_into_the_arrays_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[any_output.MatchArrays] = []
    made = any_output.MatchArrays.__init__

    def counted(self: any_output.MatchArrays) -> None:
        rooms.append(self)
        made(self)

    monkeypatch.setattr(any_output.MatchArrays, "__init__", counted)
    match = compiled(CLAUSE.format("A B C", "WITHIN 40", ""))
    assert len(rows_of(match, constant(200))) > 3 * any_output.MATCHES_MAX
    assert len(rooms) == 1
