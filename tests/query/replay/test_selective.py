"""Random selective patterns of the benchmark, on a small stream: equal rows, little read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from chronicle.bench.selective import (
    READ,
    SELECTIVE,
    covered,
    filled,
    random_pattern,
    read_share,
    trades,
)

from ...rounds import rounds

EVENTS = 60_000


def test_patterns_of_every_kind_read_little(tmp_path: Path) -> None:
    """Of all that an index can help with; here intervals are wide beside so short a stream."""
    rng = np.random.default_rng(18)
    wanted, reads, kinds = rounds(6, 60, 1000), list[float](), set[str]()
    database = filled(tmp_path / "store", trades(EVENTS))
    try:
        while len(reads) < wanted:
            pattern = random_pattern(rng)
            replay, looked_up = (pattern.with_strategy(name) for name in ("replay", "all"))
            expected = database.sql(replay).arrow()
            assert database.sql(looked_up).arrow().equals(expected), looked_up
            if covered(pattern, expected, EVENTS) <= SELECTIVE:
                reads.append(read_share(database, looked_up))
                kinds |= pattern.traits
    finally:
        database.close()
    assert len(kinds) >= 4
    assert np.median(reads) < READ
