"""Calibration of ``cost.Weights`` on a synthetic stream: a second, some tens of megabytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ...core.scratch import ScratchDirectory
from ...indexes.keys import count_bits, positions_of_bits
from ...indexes.lookup import IndexMetrics, KeyRanges, mark_run
from ...indexes.stream_indexes import StreamIndexes
from ...schema import StreamSchema
from ...store import Store, StreamOptions
from ...store.prune import Range
from ...store.snapshot import Snapshot
from ..pattern.compiled import compile_match
from ..sql.match_clause import clause_of_text
from .applicability import demands
from .candidates import ChosenBlock, find_candidates
from .context import PlanContext
from .cost import Weights
from .partitions import PartitionKeys, PartitionSpans, positions, ranks
from .planning import consider, plan_match
from .reading import read_spans
from .replay_plan import ReplayIntervals
from .run_plan import read_partitions, run_match
from .spans import Spans
from .symbols import known_outlines
from .timeline import Timeline, read_positions

EVENTS = 400_000
KEYS = 100
RUNS = 4
LEAST_NS = 0.01
LOOKUPS = 40
SPANS = 40
NEAR = 200

_SCHEMA = StreamSchema(
    pa.schema(
        [pa.field("t", pa.int64(), False), pa.field("x", pa.float64()), pa.field("k", pa.string())]
    ),
    "t",
)
_WINDOW = 100
_PATTERN = (
    f"SELECT * FROM s MATCH_RECOGNIZE ({{}}ORDER BY t MEASURES A.t AS a PATTERN (A B* C) "
    f"WITHIN {_WINDOW} DEFINE {{}})"
)
_PLAIN = "A AS x < 0.001, C AS x > 0.999"
_DEAR = "A AS x < 0.001 AND sqrt(x) < 2, C AS x > 0.999"
_WALKED = 0.05
_WALKING = f"A AS x < {_WALKED}, C AS x > A.x + 2"  # no C, so each A is followed


def calibrate_patterns(events: int = EVENTS) -> Weights:
    """Measure this machine; ``cost.save_weights`` stores the result."""
    with ScratchDirectory("calibration") as directory, Store.open(directory, "rw") as store:
        stream = store.create_stream("s", _SCHEMA, StreamOptions(codec="none"))
        rng = np.random.default_rng(7)
        keys = np.array([f"key {i}" for i in range(KEYS)])[rng.integers(0, KEYS, events)]
        columns = {"t": np.arange(events), "x": rng.random(events), "k": keys}
        stream.append(pa.table(columns, schema=_SCHEMA.arrow))
        stream.seal()
        indexes = StreamIndexes(directory / "calibration-indexes", True)
        indexes.create("x", _SCHEMA)
        snapshot = stream.snapshot()
        indexes.catch_up(snapshot.state)
        try:
            entry, run = _lookups(indexes, events)
            decoded = _decoded(snapshot, events)
            near = _intervals(snapshot, indexes, events, events // NEAR) - NEAR * decoded
            event = _replay(snapshot, events)
            walking, dear = (_replay(snapshot, events, "", told) for told in (_WALKING, _DEAR))
            return Weights(
                event=event,
                interval=_intervals(snapshot, indexes, events, SPANS),
                near=max(LEAST_NS, near),
                decoded=decoded,
                entry=entry,
                run=run,
                occurrence=_occurrences(snapshot, indexes, events),
                word=_words(events),
                query=_planning(snapshot, indexes),
                grouped=_replay(snapshot, events, "PARTITION BY k "),
                key=_keys(snapshot, events),
                picked=max(LEAST_NS, _picked(snapshot, events)),
                walk=max(LEAST_NS, (walking - event) / (_WALKED * _WINDOW)),
                condition=max(LEAST_NS, dear - event),
                around=_around(snapshot, events),
                outline=_more_outlines(snapshot, indexes),
            )
        finally:
            indexes.close()


def _least(measure: Callable[[], object]) -> float:
    measure()
    times = []
    for _ in range(RUNS):
        begun = time.perf_counter_ns()
        measure()
        times.append(time.perf_counter_ns() - begun)
    return float(max(1, min(times)))


def _replay(
    snapshot: Snapshot, events: int, partition: str = "", conditions: str = _PLAIN
) -> float:
    compiled = compile_match(clause_of_text(_PATTERN.format(partition, conditions)), _SCHEMA)
    plan = plan_match(snapshot, compiled, None, "replay")
    return _least(lambda: list(run_match(snapshot, compiled, plan))) / events


def _lookups(indexes: StreamIndexes, events: int) -> tuple[float, float]:
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


def _intervals(snapshot: Snapshot, indexes: StreamIndexes, events: int, number: int) -> float:
    timeline = Timeline(snapshot, indexes, indexes.catalogue())
    starts = np.linspace(1000, events - 1000, number).astype(np.int64)
    intervals = ReplayIntervals(Spans(starts, starts + 1), before=1, after=1)

    def measure() -> list[object]:
        return list(read_spans(snapshot, timeline, intervals, ["t", "x"]))

    return _least(measure) / number


def _decoded(snapshot: Snapshot, events: int) -> float:
    output = _SCHEMA.arrow
    timeline = Timeline(snapshot)
    return _least(lambda: list(read_positions(timeline, output.names, output, 0, events))) / events


def _occurrences(snapshot: Snapshot, indexes: StreamIndexes, events: int) -> float:
    timeline = Timeline(snapshot, indexes, indexes.catalogue())
    first, second = np.arange(0, events - 50, 20), np.arange(10, events - 50, 20)
    blocks = [ChosenBlock((), 1, 0), ChosenBlock((), 1, 0)]
    least = _least(lambda: find_candidates([first, second], blocks, 0, 0, timeline, 100, None))
    return least / (len(first) + len(second))


def _words(events: int) -> float:
    """Nanoseconds of one pass over a bitmap word; a lookup makes three."""
    words = max(1, events // 64) * 16  # the size for a stream of millions
    nothing = np.zeros(0, np.int64)

    def measure() -> None:
        bits = np.zeros(words, np.uint64)
        count_bits(bits)
        positions_of_bits(bits, 0, nothing)

    return max(0.01, _least(measure) / (3 * words))


def _planning(snapshot: Snapshot, indexes: StreamIndexes) -> float:
    compiled = compile_match(clause_of_text(_PATTERN.format("", _PLAIN)), _SCHEMA)
    spent = []
    for _ in range(RUNS + 1):
        phases = plan_match(snapshot, compiled, indexes, "optimal").phases
        spent.append(phases["outline_ms"] + phases["coarse_ms"] + phases["selection_ms"])
    return max(1.0, 1e6 * min(spent[1:]))


def _more_outlines(snapshot: Snapshot, indexes: StreamIndexes) -> float:
    text = _PATTERN.replace("A B* C", "PERMUTE(A, C)").format("", _PLAIN)
    compiled = compile_match(clause_of_text(text), _SCHEMA)
    options = known_outlines(compiled, _SCHEMA, None, frozenset(indexes.attributes))
    first, *others = [one for option in options for one in option]
    spent = []
    for _ in range(RUNS + 1):
        context = PlanContext.of(snapshot, first, demands(compiled), indexes)
        consider(context, "optimal")
        begun = time.perf_counter_ns()
        for one in others:
            consider(replace(context, pattern=one), "optimal")
        spent.append((time.perf_counter_ns() - begun) / len(others))
    return max(1.0, min(spent[1:]))


def _keys(snapshot: Snapshot, events: int) -> float:
    keys = _learned(snapshot, events)
    return _least(lambda: [codes for _, codes in keys.pieces(0, events)]) / events


def _picked(snapshot: Snapshot, events: int) -> float:
    keys, timeline = _learned(snapshot, events), Timeline(snapshot)
    codes = np.arange(0, keys.count, 2)
    none = np.zeros(len(codes), np.int64)
    spans = PartitionSpans.of(keys, codes, none, none + events, events + 1)
    intervals = ReplayIntervals(Spans.of([0], [events]), partitions=spans)

    def measure() -> list[object]:
        return list(read_partitions(snapshot, timeline, intervals, spans, ["t", "x"]))

    return _least(measure) * keys.count / (len(codes) * events)


def _around(snapshot: Snapshot, events: int) -> float:
    keys = _learned(snapshot, events)
    codes, middle = np.arange(keys.count), np.full(keys.count, events // 2)

    def measure() -> None:
        positions(keys, events, codes, ranks(keys, events, codes, middle) - 1)

    return _least(measure) / events


def _learned(snapshot: Snapshot, events: int) -> PartitionKeys:
    keys = PartitionKeys(Timeline(snapshot), ["k"], _SCHEMA)
    keys.learn(np.arange(min(events, 10 * KEYS)))
    return keys
