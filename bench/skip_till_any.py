"""SKIP TILL ANY MATCH: lists against the search, over the streams of Mikkelsen's thesis.

Purpose
    The published grid has one event a second, six names and patterns of six variables (thesis,
    chapter 6); the scaled one has 50 names, so that windows of hundreds of events still end.  What
    the thesis varies beyond that, conditions between two variables, is the search's in both
    columns and not measured here.  Counts stand beside rows: where rows are many, both sides only
    write rows.

Guarantee
    Both sides give the same number of matches, else the run fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ..query.pattern.any_choice import Selecting
from ..query.pattern.compiled import CompiledMatch
from .harness import Row, Section
from .patterns import compiled

__all__ = ["run"]

SEARCHED_MAX = 30_000_000
"""Matches up to which the search is run, too."""


def events(count: int, names: int, seed: int) -> pa.Table:
    """One event a second, names drawn evenly."""
    drawn = np.random.default_rng(seed).integers(0, names, count)
    return pa.table({"t": np.arange(count), "name": drawn})


def clause(variables: int, window: int, kleene: int = 0) -> str:
    """A sequence of variables, the first ``kleene`` inner ones with a plus."""
    letters = "ABCDEFGHIJ"[:variables]
    pattern = " ".join(v + "+" * (0 < i <= kleene) for i, v in enumerate(letters))
    defined = ", ".join(f"{v} AS name = {i}" for i, v in enumerate(letters))
    return (
        f"ORDER BY t MEASURES MATCH_NUMBER() AS n PATTERN ({pattern}) WITHIN {window} "
        f"EVENT SELECTION SKIP TILL ANY MATCH DEFINE {defined}"
    )


def _timed(run: Callable[[], int]) -> tuple[int, float]:
    begun = time.perf_counter()
    found = run()
    return found, time.perf_counter() - begun


def _run(match: CompiledMatch, table: pa.Table, **asked: object) -> tuple[int, float]:
    """Matches and seconds; with ``weighted`` the matches are counted."""
    asking = replace(match, selecting=Selecting(**asked))  # type: ignore[arg-type]

    def run() -> int:
        total = 0
        for batch in asking.run(table.to_batches(max_chunksize=1 << 16)):
            total += sum(batch.column(0).to_pylist()) if asked.get("weighted") else batch.num_rows
        return total

    return _timed(run)


def run(short: bool = False) -> Section:
    """Measure all cases."""
    section = Section(
        "Skip till any match",
        "One event a second, names drawn evenly, one thread; the first column is the regime of "
        "lists, the peer the search of the same build (`selection(search)`).",
    )
    size = 20_000 if short else 100_000
    grid = [(6, 6, window, 0) for window in (20, 40)] + [(6, 6, 20, 1), (6, 6, 20, 2)]
    scaled = [(50, 6, window, 0) for window in (300, 1000)]
    for names, variables, window, kleene in [*grid, *scaled]:
        table = events(size, names, seed=35)
        match = compiled(clause(variables, window, kleene), table.schema)
        _run(match, table.slice(0, 500), wanted="search")
        counted, count_seconds = _run(match, table, weighted=True)
        _run(match, table.slice(0, 500))
        listed, seconds = _run(match, table)
        plus = f", {kleene} Kleene plus" if kleene else ""
        what = f"{names} names, k = {variables}, W = {window}{plus}: {listed:,} matches"
        if counted != listed:
            raise AssertionError(f"{what}, counted {counted:,}")
        if listed <= SEARCHED_MAX:
            searched, search_seconds = _run(match, table, wanted="search")
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
    return section


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
