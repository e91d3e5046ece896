"""Patterns through indexes against our own full replay, on the thesis's synthetic stream.

Purpose
    Experiments of thesis section 3.5.3: speed-up by number of symbols (Figure 3.9) and by
    distribution (Figure 3.13), error of the replay estimate (Figures 3.10, 3.14), selection time
    and combinations examined (Figure 3.11).  Every plan's rows are compared with those of the
    replay; a difference ends the run.

Layout
    Five doubles per event, normal around a mean that grows from 0 to 1, with deviations 0, 0.001,
    0.01, 0.1 and 1 (values outside of the unit interval are drawn again, so the last is near
    uniform).  Queries: m symbols with ranges of up to a tenth of the domain, gaps placed as in the
    thesis, window 300.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..indexes import StreamIndexes
from ..query.match import compile_match
from ..query.match_clause import clause_of_text
from ..query.replay.planning import plan_match
from ..query.replay.running import run_match
from ..schema import StreamSchema
from ..store import Store, StreamOptions
from .harness import Row, Section

__all__ = ["SCHEMA", "events", "random_query", "run"]

DEVIATIONS = (0.0, 0.001, 0.01, 0.1, 1.0)
WINDOW = 300
PROTOTYPE_MS = {2: 1468, 4: 444, 8: 243, 16: 92, 32: 33}
"""Medians of the thesis's prototype (Java) at 5 M events on a machine like this, symbols on A5."""

SCHEMA = StreamSchema(
    pa.schema(
        [pa.field("t", pa.int64(), False)] + [pa.field(f"a{j}", pa.float64()) for j in range(1, 6)]
    ),
    "t",
)


def events(first: int, end: int, total: int, rng: np.random.Generator) -> pa.Table:
    """Events ``first`` to ``end`` of ``total``."""
    mean = np.arange(first, end) / total
    columns: dict[str, Any] = {"t": np.arange(first + 1, end + 1)}
    for j, deviation in enumerate(DEVIATIONS, 1):
        values = mean + deviation * rng.standard_normal(end - first)
        outside = np.flatnonzero((values < 0) | (values >= 1))
        while len(outside):
            values[outside] = mean[outside] + deviation * rng.standard_normal(len(outside))
            outside = outside[(values[outside] < 0) | (values[outside] >= 1)]
        columns[f"a{j}"] = values
    return pa.table(columns, schema=SCHEMA.arrow)


def random_query(symbols: int, rng: np.random.Generator, special: str = "a5") -> str:
    """A query of the thesis: one symbol on ``special``, the others on A5."""
    gaps, low = set(), 0
    while low < symbols - 1:
        cut = int(rng.integers(low, symbols - 1))
        gaps.add(cut)
        low = cut + 1
    chosen = int(rng.integers(0, symbols))
    pattern, conditions = [], []
    for i in range(symbols):
        width = rng.random() * 0.1
        start = rng.random() * (1 - width)
        attribute = special if i == chosen else "a5"
        pattern.append(f"S{i}")
        conditions.append(f"S{i} AS {attribute} BETWEEN {start:.7f} AND {start + width:.7f}")
        if i in gaps:
            pattern.append("Z*")
    return (
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS first, LAST(t) AS last "
        f"AFTER MATCH SKIP TO NEXT ROW PATTERN ({' '.join(pattern)}) WITHIN {WINDOW} "
        f"DEFINE {', '.join(conditions)})"
    )


class _Bed:
    """The stream, its indexes and one way to run a query."""

    def __init__(self, directory: Path, total: int) -> None:
        self.store = Store.open(directory, "rw")
        self.stream = self.store.create_stream("s", SCHEMA, StreamOptions(codec="none"))
        rng = np.random.default_rng(2021)
        for first in range(0, total, 1 << 19):
            self.stream.append(events(first, min(total, first + (1 << 19)), total, rng))
        self.stream.seal()
        self.indexes = StreamIndexes(directory / "bench-indexes", True)
        for j in range(1, 6):
            self.indexes.create(f"a{j}", SCHEMA)
        self.snapshot = self.stream.snapshot()
        self.indexes.catch_up(self.snapshot.state)

    def run(self, text: str, strategy: str) -> tuple[float, Any, pa.Table]:
        """Milliseconds, plan and rows."""
        compiled = compile_match(clause_of_text(text), SCHEMA)
        begun = time.perf_counter()
        plan = plan_match(self.snapshot, compiled, self.indexes, strategy)
        batches = list(run_match(self.snapshot, compiled, plan))
        spent = (time.perf_counter() - begun) * 1000
        return spent, plan, pa.Table.from_batches(batches, schema=compiled.output_schema)

    def close(self) -> None:
        self.indexes.close()
        self.store.close()


def run(short: bool) -> Section:
    """Measure; 2 M events and 10 queries a setting when short, else 50 M and 100."""
    total, queries = (2_000_000, 10) if short else (50_000_000, 100)
    section = Section(
        "Patterns through indexes",
        f"{total:,} events of five doubles and a time, no codec, window {WINDOW}, {queries} random "
        "queries a setting; peer: our own full replay of the same query; warm page cache.",
    )
    with tempfile.TemporaryDirectory() as directory:
        bed = _Bed(Path(directory), total)
        try:
            for symbols in (2, 4, 8, 16, 32):
                _setting(bed, section, symbols, "a5", queries)
            for j in range(1, 5):
                _setting(bed, section, 8, f"a{j}", queries)
        finally:
            bed.close()
    return section


def _setting(bed: _Bed, section: Section, symbols: int, special: str, queries: int) -> None:
    rng = np.random.default_rng(symbols * 10 + int(special[1]))
    replayed, planned, ratios, errors, choosing, examined = [], [], [], [], [], []
    for _ in range(queries):
        text = random_query(symbols, rng, special)
        bed.run(text, "auto")
        theirs, _, expected = bed.run(text, "replay")
        ours, plan, found = bed.run(text, "auto")
        if not found.equals(expected):
            raise AssertionError(f"rows differ from those of a replay: {text}")
        replayed.append(theirs)
        planned.append(ours)
        ratios.append(theirs / ours)
        choosing.append(plan.phases.get("selection_ms", 0.0))
        examined.append(plan.examined)
        if plan.estimate is not None and plan.spans is not None and plan.needed:
            actual = plan.needed
            errors.append(abs(actual - plan.estimate.events) / actual)
    ratio = statistics.median(ratios)
    bar = {("a5", 8): 5, ("a5", 16): 10}.get((special, symbols))
    if special in ("a1", "a2", "a3"):
        bar = 50
    section.rows.append(
        Row(
            f"m = {symbols}, {special.upper()}",
            f"{statistics.median(planned):.1f} ms",
            f"{statistics.median(replayed):.1f} ms",
            f"{ratio:.1f}x (least {min(ratios):.2f}x)",
            "" if bar is None else f"median at least {bar}x",
            None if bar is None else ratio >= bar,
        )
    )
    shown = "none" if not errors else f"{statistics.median(errors):.1%}"
    section.notes.append(
        f"m = {symbols}, {special.upper()}: median error of the replay estimate {shown}; selection "
        f"{statistics.median(choosing):.2f} ms, {statistics.median(examined):.0f} choices examined."
    )
