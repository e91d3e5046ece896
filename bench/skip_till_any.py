"""SKIP TILL ANY MATCH: diagrams against the search, on the streams of Mikkelsen's thesis.

The published grid (chapter 6) has one event a second, six names and six variables; the scaled one
50 names, so that long windows end.  Pair conditions: equal prices of overlapping pairs (Q5), of
neighbours (Q6), rising prices (Q10), and of the first and last event.  Counts are measured besides
rows.  Match counts must be equal; ratios of CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa

from ..query.pattern.any_choice import Selecting
from ..query.pattern.compiled import CompiledMatch
from .harness import Row, Section
from .patterns import compiled

SEARCHED_MAX = 30_000_000
"""Most matches for which the search also runs."""
RUNS, LONG_SECONDS = 3, 2.0
"""Runs of a query, and seconds from which on it is not run again."""


def events(count: int, names: int, seed: int) -> pa.Table:
    drawn = np.random.default_rng(seed).integers(0, names, count)
    return pa.table({"t": np.arange(count), "name": drawn})


PAIRS = {
    "Q5, equal pairs that overlap": {"D": "= A.", "E": "= B.", "F": "= C."},
    "Q6, equal neighbours": {"B": "= A.", "D": "= C.", "F": "= E."},
    "Q10, rising pairs that overlap": {"D": "> A.", "E": "> B.", "F": "> C."},
    "first and last equal": {"F": "= A."},
}


def events_with_prices(count: int, names: int, prices: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    drawn = {"name": rng.integers(0, names, count), "price": rng.integers(0, prices, count)}
    return pa.table({"t": np.arange(count), **drawn})


def paired_clause(pairs: dict[str, str], variables: int, window: int) -> str:
    """A sequence of variables with conditions between them; ``= A.`` is ``price = A.price``."""
    letters = "ABCDEFGHIJ"[:variables]
    defined = [
        f"{v} AS name = {i}" + (f" AND price {pairs[v]}price" if v in pairs else "")
        for i, v in enumerate(letters)
    ]
    return (
        f"ORDER BY t MEASURES MATCH_NUMBER() AS n PATTERN ({' '.join(letters)}) WITHIN {window} "
        f"EVENT SELECTION SKIP TILL ANY MATCH DEFINE {', '.join(defined)}"
    )


def self_join(pairs: dict[str, str], variables: int, window: int, table: pa.Table) -> int:
    letters = "ABCDEFGHIJ"[:variables]
    join = [f"{v}.name = {i}" for i, v in enumerate(letters)]
    join += [f"{b}.t > {a}.t AND {b}.t <= A.t + {window}" for a, b in pairwise(letters)]
    join += [f"{v}.price {how}price" for v, how in pairs.items()]
    connection = duckdb.connect(config={"threads": 1})
    connection.register("s", table)
    connection.execute("CREATE TABLE e AS SELECT * FROM s")
    relations = ", ".join(f"e AS {v}" for v in letters)
    found = connection.execute(f"SELECT count(*) FROM {relations} WHERE {' AND '.join(join)}")
    return int(found.fetchall()[0][0])


def clause(variables: int, window: int, kleene: int = 0) -> str:
    """A sequence of variables, the first ``kleene`` inner ones with a plus."""
    letters = "ABCDEFGHIJ"[:variables]
    pattern = " ".join(v + "+" * (0 < i <= kleene) for i, v in enumerate(letters))
    defined = ", ".join(f"{v} AS name = {i}" for i, v in enumerate(letters))
    return (
        f"ORDER BY t MEASURES MATCH_NUMBER() AS n PATTERN ({pattern}) WITHIN {window} "
        f"EVENT SELECTION SKIP TILL ANY MATCH DEFINE {defined}"
    )


LISTED = {
    "MATCH_NUMBER": "MATCH_NUMBER() AS n",
    "first and last time": "A.t AS a, F.t AS f",
    "all six times": "A.t AS a, B.t AS b, C.t AS c, D.t AS d, E.t AS e, F.t AS f",
}


def _timed(run: Callable[[], int]) -> tuple[int, float]:
    begun = time.process_time()
    found = run()
    return found, time.process_time() - begun


def _once(match: CompiledMatch, table: pa.Table, asked: dict[str, object]) -> int:
    asking = replace(match, selecting=Selecting(**asked))  # type: ignore[arg-type]
    total = 0
    for batch in asking.run(table.to_batches(max_chunksize=1 << 16)):
        total += sum(batch.column(0).to_pylist()) if asked.get("weighted") else batch.num_rows
    return total


def _run(match: CompiledMatch, table: pa.Table, **asked: object) -> tuple[int, float]:
    found, least = _timed(lambda: _once(match, table, asked))
    for _ in range(RUNS - 1):
        if least < LONG_SECONDS:
            least = min(least, _timed(lambda: _once(match, table, asked))[1])
    return found, least


def run(short: bool = False) -> Section:
    section = Section(
        "Skip till any match",
        "One event a second, names drawn evenly, one thread; the first column is the diagram, the "
        "peer the search of the same build, where it is not named.",
    )
    size = 20_000 if short else 100_000
    grid = [(6, 6, window, 0) for window in (20, 40)] + [(6, 6, 20, 1), (6, 6, 20, 2)]
    scaled = [(50, 6, window, 0) for window in (300, 1000)]
    for names, variables, window, kleene in [*grid, *scaled]:
        table = events(size, names, seed=35)
        match = compiled(clause(variables, window, kleene), table.schema)
        _run(match, table.slice(0, 500), search=True)
        counted, count_seconds = _run(match, table, weighted=True)
        _run(match, table.slice(0, 500))
        listed, seconds = _run(match, table)
        plus = f", {kleene} Kleene plus" if kleene else ""
        what = f"{names} names, k = {variables}, W = {window}{plus}: {listed:,} matches"
        if counted != listed:
            raise AssertionError(f"{what}, counted {counted:,}")
        if listed <= SEARCHED_MAX:
            searched, search_seconds = _run(match, table, search=True)
            if searched != listed:
                raise AssertionError(f"{what}, the search finds {searched:,}")
            _add(section, what + ", rows", seconds, search_seconds, 1.0)
            _add(section, what + ", count(*)", count_seconds, search_seconds, 10.0)
        else:
            _add(section, what + ", rows", seconds, None, None)
            _add(section, what + ", count(*)", count_seconds, None, None)
        section.notes.append(f"{what}: {listed / seconds / 1e6:.1f} M matches/s written.")
    table = events(100_000, 50, seed=36)
    match = compiled(clause(7, 3000), table.schema)
    _run(match, table.slice(0, 500), weighted=True)
    counted, seconds = _run(match, table, weighted=True)
    _add(
        section, f"50 names, k = 7, W = 3,000: {counted:.2e} matches, count(*)", seconds, None, None
    )
    first = replace(match, selecting=Selecting())
    _, seconds = _timed(lambda: next(iter(first.run(table.to_batches()))).num_rows)
    _add(section, "the same, first batch of rows, lists included", seconds, None, None)
    _listing(section, short)
    _pairs(section, size, short)
    return section


def _listing(section: Section, short: bool) -> None:
    table = events(400 if short else 600, 6, seed=35)
    for title, measures in LISTED.items():
        text = clause(6, 200).replace("MATCH_NUMBER() AS n", measures)
        match = compiled(text, table.schema)
        _run(match, table.slice(0, 250))
        listed, seconds = _run(match, table)
        speed = listed / seconds / 1e6
        bar = 20.0 if title == "MATCH_NUMBER" else None
        section.rows.append(
            Row(
                f"six names, W = 200, {listed:,} matches listed with {title}",
                f"{speed:.1f} M matches/s of processor time", "", "",
                "" if bar is None else f"{bar:.0f} M/s", None if bar is None else speed >= bar,
            )
        )  # fmt: skip


def _pairs(section: Section, size: int, short: bool) -> None:
    grid = [(6, 2, window, size, 1.0) for window in (20, 40)]
    grid += [(50, 100, 300, size, 10.0), (50, 100, 1000, size if not short else 10_000, 100.0)]
    for names, prices, window, count, bar in grid:
        table = events_with_prices(count, names, prices, seed=37)
        for title, pairs in PAIRS.items():
            what = f"{title}: {names} names, W = {window}"
            match = compiled(paired_clause(pairs, 6, window), table.schema)
            _compare(section, match, table, what, bar)
    table = events_with_prices(5000 if short else size, 50, 100, seed=37)
    pairs = PAIRS["first and last equal"]
    match = compiled(paired_clause(pairs, 6, 300), table.schema)
    counted, seconds = _run(match, table, weighted=True)
    joined, peer = _timed(lambda: self_join(pairs, 6, 300, table))
    if joined != counted:
        raise AssertionError(f"DuckDB's self-join finds {joined:,}, counted {counted:,}")
    what = f"first and last equal: 50 names, W = 300, {table.num_rows:,} events, DuckDB's self-join"
    _add(section, what, seconds, peer, 20.0)
    table = events_with_prices(5000 if short else 20_000, 50, 100, seed=38)
    for variables in (3, 5, 7):
        falling = {b: f"< {a}." for a, b in pairwise("ABCDEFG"[:variables])}
        match = compiled(paired_clause(falling, variables, 600), table.schema)
        what = f"falling neighbours: 50 names, k = {variables}, W = 600"
        _compare(section, match, table, what, 100.0 if variables > 5 else None)


def _compare(
    section: Section, match: CompiledMatch, table: pa.Table, what: str, bar: float | None
) -> None:
    for search in (False, True):
        _run(match, table.slice(0, 5000), search=search)
    listed, seconds = _run(match, table)
    counted, count_seconds = _run(match, table, weighted=True)
    searched, search_seconds = _run(match, table, search=True)
    if not listed == counted == searched:
        raise AssertionError(f"{what}: {listed:,}, counted {counted:,}, searched {searched:,}")
    what = f"{what}: {listed:,} matches"
    _add(section, what + ", rows", seconds, search_seconds, bar)
    _add(section, what + ", count(*)", count_seconds, search_seconds, bar)


def _add(
    section: Section, what: str, seconds: float, search: float | None, bar: float | None
) -> None:
    section.rows.append(
        Row(
            what,
            f"{seconds:.3f} s",
            f"{search:.3f} s" if search is not None else "",
            f"{search / seconds:.1f}x" if search is not None else "",
            f"{bar:.0f}x" if bar is not None else "",
            None if bar is None or search is None else search / seconds >= bar,
        )
    )
