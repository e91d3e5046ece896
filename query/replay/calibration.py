"""Calibration of the weights that choose between indexes and replay.

Purpose
    :func:`calibrate_patterns` measures, on a small synthetic stream with an index, what an event
    costs to replay, an entry to look up, a run to open and an interval to begin.

Guarantee
    Weights are above zero; times are minima over several runs, so that what else the machine does
    shows little.

Cost
    About a second and some tens of megabytes in the temporary directory.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...indexes.lookup import IndexMetrics, KeyRanges, mark_run
from ...indexes.stream_indexes import StreamIndexes
from ...schema import StreamSchema
from ...store import Store, StreamOptions
from ...store.prune import Range
from ...store.snapshot import Snapshot
from ..match import compile_match
from ..match_clause import clause_of_text
from .cost import Weights
from .planning import plan_match
from .reader import read_spans
from .running import run_match
from .spans import Spans
from .timeline import Timeline

__all__ = ["calibrate_patterns"]

EVENTS = 400_000
RUNS = 4
LOOKUPS = 40
SPANS = 40

_SCHEMA = StreamSchema(
    pa.schema([pa.field("t", pa.int64(), False), pa.field("x", pa.float64())]), "t"
)
_PATTERN = (
    "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a PATTERN (A B* C) WITHIN 100 "
    "DEFINE A AS x < 0.001, C AS x > 0.999)"
)


def calibrate_patterns(events: int = EVENTS) -> Weights:
    """Measure this machine; :func:`.cost.save_weights` keeps the answer in a store."""
    with tempfile.TemporaryDirectory() as directory, Store.open(directory, "rw") as store:
        stream = store.create_stream("s", _SCHEMA, StreamOptions(codec="none"))
        values = np.random.default_rng(7).random(events)
        stream.append(pa.table({"t": np.arange(events), "x": values}, schema=_SCHEMA.arrow))
        stream.seal()
        indexes = StreamIndexes(Path(directory) / "calibration-indexes", True)
        indexes.create("x", _SCHEMA)
        snapshot = stream.snapshot()
        indexes.catch_up(snapshot.state)
        try:
            entry, run = _lookups(indexes, events)
            return replace(
                Weights(),
                event=_replay(snapshot, events),
                entry=entry,
                run=run,
                interval=_intervals(snapshot, indexes, events),
            )
        finally:
            indexes.close()


def _least(measure: Callable[[], object]) -> float:
    """Least nanoseconds of several runs, the first not counted."""
    measure()
    times = []
    for _ in range(RUNS):
        begun = time.perf_counter_ns()
        measure()
        times.append(time.perf_counter_ns() - begun)
    return float(max(1, min(times)))


def _replay(snapshot: Snapshot, events: int) -> float:
    compiled = compile_match(clause_of_text(_PATTERN), _SCHEMA)
    plan = plan_match(snapshot, compiled, None, "replay")
    return _least(lambda: list(run_match(snapshot, compiled, plan))) / events


def _lookups(indexes: StreamIndexes, events: int) -> tuple[float, float]:
    """Nanoseconds of an entry and of a run."""
    run = next(iter(indexes.catalogue().runs.values()))[0]
    attribute = _SCHEMA.attribute("x")
    bits = np.zeros((events + 63) // 64, np.uint64)

    def look_up(width: float) -> Callable[[], object]:
        def measure() -> None:
            for i in range(LOOKUPS):
                low = 0.1 + 0.01 * i
                atom = Range("x", low, low + width)
                keys = KeyRanges(indexes, [atom], attribute)
                mark_run(run, keys, 0, bits, events, IndexMetrics())

        return measure

    little = _least(look_up(1e-6)) / LOOKUPS
    much = _least(look_up(0.2)) / LOOKUPS
    return max(0.1, (much - little) / (0.2 * run.entries)), little


def _intervals(snapshot: Snapshot, indexes: StreamIndexes, events: int) -> float:
    """Nanoseconds to begin reading an interval."""
    timeline = Timeline(snapshot, indexes, indexes.catalogue())
    starts = np.linspace(1000, events - 1000, SPANS).astype(np.int64)
    spans = Spans(starts, starts + 1)

    def measure() -> list[object]:
        return list(read_spans(snapshot, timeline, spans, {}, ["t", "x"], 1, 1))

    return _least(measure) / SPANS
