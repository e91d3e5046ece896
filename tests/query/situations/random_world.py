"""Many random streams that lie in one, and random patterns over them.

A stretch is a partition, or, without PARTITION BY, what lies between two silences longer than any
window.  Some names hold in few stretches, one nearly always, so that starts and ends are worth
looking up; some rows are late.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ... import oracles_situations as oracle
from .test_situations_differential import random_pattern, text_of
from .test_situations_many import Ints, Streams

__all__ = ["SCHEMA", "STRETCHES", "World", "asked"]

STRETCHES = 100
WINDOWS = (2, 5, 12, 30)
QUIET = 40
"""Ticks between stretches without PARTITION BY."""
SCHEMA = pa.schema(
    [("t", pa.int64()), ("p", pa.string()), ("v", pa.int64())]
    + [(name, pa.float64()) for name in "abcd"]
)
CONDITIONS = ("{0} BETWEEN 0.5 AND 1.5", "({0} >= 0.5 AND NOT {0} > 1.5)")
"""The same."""


@dataclass
class World:
    """Rows in the order of the stream, with the number of their stretch; ``keys`` of these.

    ``late``: by how many commits a row comes later than those of its time.
    """

    time: Ints
    stretch: Ints
    v: Ints
    state: npt.NDArray[np.int8]
    late: npt.NDArray[np.int64]
    keys: npt.NDArray[np.object_] | None

    @classmethod
    def random(
        cls, rng: np.random.Generator, partitioned: bool, late: float, repeated: bool = False
    ) -> World:
        """``late``: share of such rows; ``repeated``: every row many times, within few ticks."""
        streams = Streams.random(rng, STRETCHES)
        stretch = np.repeat(np.arange(STRETCHES), np.diff(streams.begin))
        time, state = streams.time, streams.state
        held = rng.random((STRETCHES, 4)) < rng.permutation([0.1, 0.4, 0.9, 1.0])
        mostly = rng.integers(0, 5)  # 4: no name
        for name in range(4):
            state[~held[stretch, name], name] = 0
            if name == mostly:
                state[rng.random(len(state)) < 0.995, name] = 1
        keys: npt.NDArray[np.object_] | None = None
        if partitioned:
            time = time + rng.integers(0, 1500, STRETCHES)[stretch]
            keys = np.array([str(i) for i in rng.permutation(np.arange(100, 1000))[:STRETCHES]])
            keys = keys.astype(object)
            keys[rng.integers(0, STRETCHES)] = None
        else:  # a last row that ends all, and silence
            closing = streams.begin[1:]
            last = np.array([time[e - 1] if e else 0 for e in closing.tolist()])
            time = np.insert(time, closing, last + 1)
            state = np.insert(state, closing, 0, axis=0)
            stretch = np.insert(stretch, closing, np.arange(STRETCHES))
            lengths = np.array([np.ptp(time[stretch == i]) for i in range(STRETCHES)]) + QUIET
            first = np.array([time[stretch == i].min() for i in range(STRETCHES)])
            time = time - first[stretch] + (np.cumsum(lengths) - lengths)[stretch]
        if repeated:
            times = rng.choice([1, 2, 40, 300], len(time), p=[0.4, 0.3, 0.2, 0.1])
            time, stretch = np.repeat(time, times), np.repeat(stretch, times)
            state = np.repeat(state, times, axis=0)
        after = np.where(rng.random(len(time)) < late, rng.integers(1, 3, len(time)), 0)
        if not partitioned:
            after[np.diff(stretch, append=-1) != 0] = 0
        order = np.lexsort((after, time))
        v = rng.integers(0, 10, len(time))
        return cls(time[order], stretch[order], v, state[order], after[order], keys)

    def only(self, kept: npt.NDArray[np.bool_]) -> World:
        """Some of the rows."""
        columns = (self.time, self.stretch, self.v, self.state, self.late)
        return World(*(column[kept] for column in columns), self.keys)

    def table(self) -> pa.Table:
        """The rows."""
        keys = self.keys if self.keys is not None else np.full(STRETCHES, "x", object)
        columns = [pa.array(self.time), pa.array(keys[self.stretch]), pa.array(self.v)]
        within = self.v / 20
        for state in self.state.T:
            values = np.where(state == 3, np.nan, within + 0.5 * (state == 1))
            columns.append(pa.array(values, mask=state == 2))
        return pa.table(columns, SCHEMA)

    def wanted(self, pattern: oracle.Pattern, early: bool, rising: bool) -> Ints:
        """What the definitions say of a pattern; ``rising``: the first name, where v grows."""
        holds = np.ascontiguousarray((self.state == 1).T[: len(pattern.names)])
        order = np.argsort(self.stretch, kind="stable")
        begin = np.searchsorted(self.stretch[order], np.arange(STRETCHES + 1))
        if rising:
            within = order if self.keys is not None else np.arange(len(order))
            before = np.zeros(len(order), np.bool_)
            before[within[2:]] = self.v[within[2:]] > self.v[within[:-2]]
            if self.keys is not None:  # the first two have none
                for first in begin[:-1]:
                    before[order[first : first + 2]] = False
            holds[0] &= before
        now = int(self.time.max())
        return oracle.all_matches(pattern, self.time[order], holds[:, order], begin, early, now)


def asked(rng: random.Random, kind: str) -> tuple[oracle.Pattern, bool, bool, str]:
    """A pattern with a window, whether it tells early, whether it rises, and its text."""
    pattern, early, _ = random_pattern(rng)
    pattern.within = rng.choice(WINDOWS)
    rising = rng.random() < 0.15
    if kind == "tree":
        pattern.gap, rising = None, False
    text = text_of(pattern, early, kind == "partitions", measured=False)
    for name in pattern.names:
        holds = rng.choice(CONDITIONS).format(name)
        if rising and name == pattern.names[0]:
            holds += " AND v > PREV(v, 2)"
        text = text.replace(f" {name} AS {name} = 1", f" {name} AS {holds}")
    return pattern, early, rising, text
