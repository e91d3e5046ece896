"""Ten thousand saved patterns: the bank against the same patterns one by one.

Purpose
    Patterns of three symbols over one stream, each symbol a range of one column that a given share
    of the events falls into.  Printed are events a second by the number of patterns and the share;
    one by one, a sample of the patterns is run and its time taken times their number.

Guarantee
    Both sides find the same matches of the sampled patterns, else the run fails.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from ..live.bank.cards import card_of
from ..live.bank.pattern_bank import PatternBank
from ..query.pattern.advancing import AdvancingMatch
from .harness import Row, Section
from .patterns import compiled

__all__ = ["run"]

SCHEMA = pa.schema(
    [pa.field("t", pa.int64(), False), *((name, pa.float64()) for name in ("x", "y", "z"))]
)
SAMPLED = 10
STEP = 1 << 16


def events(count: int) -> pa.Table:
    """Evenly drawn values in three columns."""
    drawn = np.random.default_rng(7)
    columns = {name: drawn.random(count) for name in ("x", "y", "z")}
    return pa.table({"t": np.arange(count), **columns}).cast(SCHEMA)


def pattern(rng: np.random.Generator, share: float) -> Any:
    """Three ranges, one after the other."""
    lows = rng.random(3) * (1 - share)
    defined = ", ".join(
        f"{v} AS {column} BETWEEN {low:.9f} AND {low + share:.9f}"
        for v, column, low in zip("ABC", "xyz", lows, strict=True)
    )
    clause = f"ORDER BY t MEASURES A.t AS a PATTERN (A B C) WITHIN 100 DEFINE {defined}"
    return compiled(clause, SCHEMA)


def _steps(stream: Any, table: pa.Table) -> tuple[list[Any], float]:
    """What a stream says in steps, and seconds."""
    begun = time.perf_counter()
    found = [
        stream.advance(table.slice(at, STEP), min(at + STEP, table.num_rows) - 1)
        for at in range(0, table.num_rows, STEP)
    ]
    return [*found, stream.finish()], time.perf_counter() - begun


def run(short: bool = False) -> Section:
    """Measure all cases."""
    section = Section(
        "Ten thousand live patterns",
        "Patterns of three symbols; each symbol holds for the share of events that is named; one "
        "thread. The peer runs each pattern by itself, as a live query of its own would.",
    )
    size = 200_000 if short else 1_000_000
    table = events(size)
    cases = [(100, 0.001), (1_000, 0.001), (1_000, 0.01)]
    cases += [] if short else [(10_000, 0.001), (10_000, 0.01)]
    for count, share in cases:
        rng = np.random.default_rng(count)
        patterns = [pattern(rng, share) for _ in range(count)]
        _steps(_bank(patterns), table.slice(0, 1_000))
        found, seconds = _steps(_bank(patterns), table)
        alone = 0.0
        chosen = list(range(0, count, max(1, count // SAMPLED)))[:SAMPLED]
        _steps(AdvancingMatch(patterns[0]), table.slice(0, 1_000))
        for i in chosen:
            wanted, taken = _steps(AdvancingMatch(patterns[i]), table)
            alone += taken
            first = [t for part in wanted for t in part.first_tick.tolist()]
            mine = [t for part in found for t in part.first_tick[part.query == i].tolist()]
            if first != mine:
                raise AssertionError(f"pattern {i} of {count}: {len(mine)} matches, {len(first)}")
        rate = size / seconds / 1e6
        bar = {0.001: 1.0, 0.01: 0.2}[share] if count == 10_000 else None
        section.rows.append(
            Row(
                f"{count:,} patterns, {share:.1%} of events a symbol",
                f"{rate:.2f} M events/s",
                f"{size / (alone / len(chosen) * count) / 1e6:.4f} M events/s",
                f"{alone / len(chosen) * count / seconds:.0f}x",
                "" if bar is None else f"{bar} M events/s",
                None if bar is None else rate >= bar,
            )
        )
    return section


def _bank(patterns: list[Any]) -> PatternBank:
    bank = PatternBank(SCHEMA, "t")
    for i, each in enumerate(patterns):
        bank.add(i, card_of(each))
    return bank
