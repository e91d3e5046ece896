"""The operator against the definitions, over very many random streams at once.

A case is a pattern and the stream of one partition.  The streams of a pattern are the partitions of
one input, or, without PARTITION BY, inputs one after the other; each has a rhythm of its own, ties,
nulls, NaN, gaps, a late beginning, runs that never end.  Compared are the rows in their order, and
the situations behind them, for the input as a whole and in random cuts, with the orders of joins
that are chosen and with forced ones, with times near zero and at both ends of 64 bits.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from chronicle.errors import SqlError
from chronicle.query.pattern.compiled import MatchLimits
from chronicle.query.situations.compiled import CompiledSituations
from chronicle.query.situations.matching import MatchBatch
from chronicle.query.situations.stream import SituationStream

from ... import oracles_situations as oracle
from ...rounds import rounds
from .test_situations_differential import random_pattern, text_of

CASES = int(os.environ.get("CHRONICLE_SITUATION_STREAMS", rounds(400, 30_000, 500_000)))
TOGETHER, ALONE = 24, 4
"""Streams of a pattern with PARTITION BY, and without."""
ROWS = 60
COMPILE = Callable[[str, pa.Schema], CompiledSituations]
Ints = npt.NDArray[np.int64]
SCHEMA = pa.schema(
    [("t", pa.int64()), ("p", pa.string())] + [(name, pa.float64()) for name in "abcd"]
)
STEPS = np.array([(0, 1, 0, 1), (1, 1, 1, 1), (0, 1, 1, 2), (1, 1, 1, 9)])
SHIFTS = (0, 0, 0, 2**63 - 2000, 1000 - 2**63)


@dataclass
class Streams:
    """Rows partition by partition, those of ``g`` at ``begin[g] .. begin[g + 1]``."""

    time: Ints
    state: npt.NDArray[np.int8]
    begin: Ints

    @classmethod
    def random(cls, rng: np.random.Generator, count: int) -> Streams:
        """States of the four names: 0, 1, 2 for null, 3 for NaN."""
        shape = (count, ROWS, 4)
        steps = STEPS[rng.integers(0, 4, (count, 1)), rng.integers(0, 4, (count, ROWS))]
        time = rng.integers(-5, 5, (count, 1)) + np.cumsum(steps, axis=1)
        fresh = rng.integers(0, 2, shape)
        odd = rng.random(shape) < 0.2
        fresh[odd] = rng.choice([0, 1, 1, 2, 3], int(odd.sum()))
        flips = rng.random(shape) > rng.choice([0.3, 0.6, 0.8], (count, 1, 1))
        flips[:, 0] = True
        since = np.maximum.accumulate(np.where(flips, np.arange(ROWS)[:, None], 0), axis=1)
        state = np.take_along_axis(fresh, since, axis=1)
        length = rng.choice([0, 1, 5, 20, 40, ROWS], count)
        kept = np.arange(ROWS) < length[:, None]
        begin = np.concatenate([[0], np.cumsum(length)])
        return cls(time[kept], state[kept].astype(np.int8), begin)

    def table(self, some: slice, shift: int, keys: npt.NDArray[np.object_]) -> pa.Table:
        """Rows of some of them in the order of time."""
        places = np.repeat(np.arange(len(self.begin) - 1), np.diff(self.begin))[some]
        order = np.argsort(self.time[some], kind="stable")
        columns = [pa.array(self.time[some][order] + shift), pa.array(keys[places[order]])]
        for state in self.state[some][order].T:
            values = np.where(state == 3, np.nan, state.astype(np.float64))
            columns.append(pa.array(values, mask=state == 2))
        return pa.table(columns, SCHEMA)


@dataclass
class Run:
    """Rows of the operator, and what they were made of."""

    rows: pa.Table
    found: list[MatchBatch]

    @classmethod
    def of(cls, compiled: CompiledSituations, table: pa.Table, cut: int) -> Run:
        """Run it over batches; each is looked at by itself where they are cut."""
        found: list[MatchBatch] = []
        stream = SituationStream(
            compiled, MatchLimits(), certified=lambda some: found.append(some) or some
        )
        rows = []
        for batch in table.to_batches(max_chunksize=cut):
            stream.target = 1
            rows += list(stream.feed(batch))
        rows += list(stream.finish())
        return cls(pa.Table.from_batches(rows, compiled.output_schema), found)


def ends_of(values: pa.ChunkedArray) -> Ints:
    filled = values.fill_null(2**63 - 1)
    return np.asarray(filled.to_numpy(), np.int64)


def wanted_of(pattern: oracle.Pattern, early: bool, streams: Streams, some: slice) -> Ints:
    """What the definitions say of some of the streams."""
    begin = streams.begin[(streams.begin >= some.start) & (streams.begin <= some.stop)]
    holds = np.ascontiguousarray((streams.state[some] == 1).T[: len(pattern.names)])
    time = streams.time[some]
    now = int(time.max(initial=-(10**6)))
    return oracle.all_matches(pattern, time, holds, begin - some.start, early, now)


def in_order(wanted: Ints, names: int, keys: npt.NDArray[np.object_] | None) -> Ints:
    """Matches in the order that is promised; ``keys`` of partitions, None without PARTITION BY."""
    by = [*wanted[:, 3 : 3 + names].T[::-1]]
    if keys is not None:
        ranks = np.argsort(np.argsort([-1 if key is None else int(key) for key in keys]))
        by.append(ranks[wanted[:, 0]])
    return wanted[np.lexsort([*by, wanted[:, 1]])]


def says(
    rows: pa.Table, wanted: Ints, names: int, keys: npt.NDArray[np.object_] | None, shift: int = 0
) -> bool:
    """Whether rows are those matches: key, and start and end of each situation."""
    columns = list(rows.columns)
    if keys is not None and columns.pop(0).to_pylist() != keys[wanted[:, 0]].tolist():
        return False
    told = np.array([ends_of(column) for column in columns]).reshape(names, 2, -1)
    starts, ends = wanted[:, 3 : 3 + names], wanted[:, 3 + names : 3 + 2 * names]
    ends = np.where(ends <= wanted[:, 1:2], ends + shift, 2**63 - 1)
    return np.array_equal(told[:, 0].T, starts + shift) and np.array_equal(told[:, 1].T, ends)


def compare(
    compiled: CompiledSituations, wanted: Ints, table: pa.Table, shift: int,
    keys: npt.NDArray[np.object_], rng: random.Random,
) -> None:  # fmt: skip
    """Hold rows and situations against what is wanted."""
    names, partitioned = len(compiled.names), bool(compiled.partition_by)
    wanted = in_order(wanted, names, keys if partitioned else None)
    instant = wanted[:, 1]
    for cut in (max(1, table.num_rows), rng.choice((3, 7, 20, 100))):
        forced = compiled
        if rng.random() < 0.5:
            forced = replace(compiled, order=tuple(rng.sample(compiled.names, names)))
        run = Run.of(forced, table, cut)
        assert says(run.rows, wanted, names, keys if partitioned else None, shift), (cut, forced)
        detected = [np.zeros(0, np.int64), *(found.detected for found in run.found)]
        wished = np.sort(wanted[:, 2] + shift)
        assert np.array_equal(np.sort(np.concatenate(detected)), wished), cut
        if not partitioned:  # its rows are numbered as they come
            first = wanted[:, 3 + 2 * names : 3 + 3 * names]
            parts = [np.column_stack([f.instant - shift, f.first]) for f in run.found]
            found = np.concatenate([np.zeros((0, names + 1), np.int64), *parts])
            own = np.column_stack([instant, first])
            assert np.array_equal(found[np.lexsort(found.T)], own[np.lexsort(own.T)]), cut


@pytest.mark.parametrize("block", range(4))
def test_the_operator_gives_what_the_definitions_say(block: int, compiled: COMPILE) -> None:
    done = some = matches = seed = 0
    while done < CASES // 4:
        seed += 1
        rng = random.Random(1_000_003 * block + seed)
        pattern, early, partitioned = random_pattern(rng)
        text, shift = text_of(pattern, early, partitioned, measured=False), rng.choice(SHIFTS)
        clause = None
        try:
            clause = compiled(text, SCHEMA)
        except SqlError as error:
            if "nothing can satisfy" not in str(error):
                raise
        count = TOGETHER if partitioned else ALONE
        streams = Streams.random(np.random.default_rng(rng.getrandbits(64)), count)
        keys = np.array([str(i) for i in rng.sample(range(100, 1000), count)], object)
        if rng.random() < 0.3:
            keys[rng.randrange(count)] = None
        cuts = sorted(set(streams.begin.tolist()))
        if partitioned:
            cuts = [cuts[0], cuts[-1]]
        for low, high in pairwise(cuts):
            wanted = wanted_of(pattern, early, streams, slice(low, high))
            if clause is None:
                assert not len(wanted), (block, seed, text)
                continue
            table = streams.table(slice(low, high), shift, keys)
            try:
                compare(clause, wanted, table, shift, keys, rng)
            except AssertionError as error:
                raise AssertionError(block, seed, text, shift) from error
            some, matches = some + (len(wanted) > 0), matches + len(wanted)
        done += count
    assert some > seed // 4
    assert matches > done // 2
