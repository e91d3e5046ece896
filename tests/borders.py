"""Events at the ends of 64-bit time, and the same events elsewhere, for tests that compare both.

An event is (cluster, offset, k, x).  Clusters lie so far apart that nothing reaches from one to
another; one begins at the least tick, one ends at the greatest.  Moved to ordinary times, each by a
multiple of every window's slide, they must give the same answers.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

__all__ = ["BORDERS", "HIGH", "LOW", "PLAIN", "SCHEMA", "SPAN", "elsewhere", "events_at", "history"]

LOW, HIGH = -(2**63), 2**63 - 1
SPAN = 64
ALIKE = 40
"""A multiple of the slides and sizes of all windows asked for."""
NEAR = 2000

BORDERS = (LOW, -32, HIGH - SPAN + 1)
PLAIN = tuple(near + (base - near) % ALIKE for base, near in zip(BORDERS, (-(10**6), -32, 10**6),
                                                                strict=True))  # fmt: skip
SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])

Event = tuple[int, int, str, int]


def history(rng: random.Random, size: int) -> list[Event]:
    """Some events of each cluster, in order; many lie at its ends."""
    offsets = (0, 0, 1, 2, 4, 30, 31, 32, 33, 61, 62, 63, 63)
    return [
        (cluster, offset, rng.choice("aab"), rng.choice([1, 2, 5, 6, 7, 9]))
        for cluster in range(len(BORDERS))
        for offset in sorted(rng.choice(offsets) for _ in range(size))
    ]


def events_at(bases: tuple[int, ...], events: Iterable[Event]) -> list[dict[str, Any]]:
    """Events with the times that they have where clusters begin at some ticks."""
    return [{"t": bases[c] + offset, "k": k, "x": x} for c, offset, k, x in events]


def _plain(tick: int) -> int:
    for border, plain in zip(BORDERS, PLAIN, strict=True):
        if border - NEAR <= tick <= border + SPAN + NEAR:
            return tick - border + plain
    raise AssertionError(f"no cluster is near {tick}")


def elsewhere(table: pa.Table, times: set[str], *, held: bool = False) -> list[tuple[Any, ...]]:
    """Rows of an answer about events at the borders with the times of the others.

    With ``held``, of an answer about the others: its times as if these lay at the borders.
    """
    first, last = PLAIN[0], PLAIN[-1] + SPAN - 1
    columns = []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        values = column.to_pylist()
        if name in times and held:
            values = [v if v is None else max(first, min(last, v)) for v in values]
        elif name in times:
            values = [v if v is None else _plain(v) for v in values]
        columns.append(values)
    return sorted(zip(*columns, strict=True), key=repr)
