"""Results as columns, and the difference between the wanted and the emitted results.

Equal results cause no output; a retraction repeats the result byte for byte; applied twice, the
second difference is empty.

``Removals`` says whether events that were removed from a source affect a state that was built
before.  Retention removes the oldest events, which does not affect a state that begins later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.identity import digests, row_words
from ..core.times import INT64_MIN
from ..query.relations import settled
from ..query.sql.sql_types import HUGEINT
from ..store.snapshot import Snapshot, StreamState
from ..store.tail import ticks_of_column
from ..store.tap import Spans

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Results:
    """Rows of a query: ``_time`` in ticks, identity (16 bytes) and the user's columns."""

    time: IntArray
    id: pa.Array
    columns: pa.Table

    def __len__(self) -> int:
        return len(self.time)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Results:
        if chosen.all():
            return self
        mask = pa.array(chosen)
        return Results(self.time[chosen], self.id.filter(mask), self.columns.filter(mask))

    def since(self, tick: int) -> Results:
        """Those from a tick on."""
        return self if tick <= INT64_MIN else self.where(self.time >= tick)

    @staticmethod
    def joined(parts: Sequence[Results]) -> Results:
        return Results(
            np.concatenate([part.time for part in parts]),
            pa.concat_arrays([part.id for part in parts]),
            pa.concat_tables([part.columns for part in parts], promote_options="permissive"),
        )


@dataclass(frozen=True)
class Corrected:
    """Closed results that may no longer hold, their replacements (without such results: additions),
    and ranges to evaluate again.
    """

    ids: pa.Array
    time: IntArray
    replacements: Results
    rest: Spans = ()


@dataclass(frozen=True)
class Emitted:
    """A sink's net contents over a range of times; ``last`` gives the greatest revision ever
    emitted of an identity, or -1.
    """

    net: Results
    revision: IntArray
    last: Callable[[pa.Array], IntArray]

    @classmethod
    def of(cls, changes: pa.RecordBatch, columns: tuple[str, ...]) -> Emitted:
        """Fold changes, by time, then emission."""
        revisions = changes.column("_rev").to_numpy(zero_copy_only=False).astype(np.int64)
        coded = pc.dictionary_encode(changes.column("_id"))
        last = np.full(len(coded.dictionary), -1, np.int64)
        np.maximum.at(last, coded.indices.to_numpy(zero_copy_only=False), revisions)
        net = settled(changes) if changes.num_rows else changes
        results = Results(
            ticks_of_column(net.column("_time")), net.column("_id"),
            pa.Table.from_batches([net.select(list(columns))]),
        )  # fmt: skip
        revision = net.column("_rev").to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(results, revision, lambda ids: _revisions_of(ids, coded.dictionary, last))

    def named(self, ids: pa.Array) -> Emitted:
        mine = pc.is_in(self.net.id, value_set=ids).to_numpy(zero_copy_only=False)
        return self.where(mine)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Emitted:
        return Emitted(self.net.where(chosen), self.revision[chosen], self.last)

    @classmethod
    def anew(cls, results: Results) -> Emitted:
        """The given results as if emitted for the first time."""
        return cls(results, np.zeros(len(results), np.int64), lambda ids: np.full(len(ids), -1))


@dataclass(frozen=True)
class Changes:
    """Output of a step: retractions (``sign`` -1), then additions (+1)."""

    results: Results
    revision: IntArray
    sign: IntArray

    def __len__(self) -> int:
        return len(self.sign)

    @classmethod
    def added(cls, results: Results) -> Changes:
        """Additions of results that were never emitted before."""
        count = len(results)
        return cls(results, np.zeros(count, np.int64), np.ones(count, np.int64))

    @classmethod
    def joined(cls, parts: list[Changes]) -> Changes:
        if len(parts) == 1:
            return parts[0]
        return cls(
            Results.joined([part.results for part in parts]),
            np.concatenate([part.revision for part in parts]),
            np.concatenate([part.sign for part in parts]),
        )


def _contents(*each: Results) -> list[pa.Array]:
    types = zip(*(some.columns.schema.types for some in each), strict=True)
    wide = [HUGEINT in some for some in types]  # the others may be 64-bit sums
    columns = [
        [
            pa.array(some.time),
            *(c.cast(HUGEINT) if w else c for c, w in zip(some.columns.columns, wide, strict=True)),
        ]
        for some in each
    ]
    words = [row_words(some.id, held) for some, held in zip(each, columns, strict=True)]
    if all(words_of_column is not None for words_of_column in words):
        return words
    return [
        pc.binary_join_element_wise(some.id, digests(b"", held), b"")
        for some, held in zip(each, columns, strict=True)
    ]


def difference(want: Results, emitted: Emitted) -> Changes:
    """Changes that turn ``emitted`` into ``want``, both complete over the same range."""
    have = emitted.net
    if not len(have):  # as in a first step
        return _next(want, emitted)
    mine, theirs = _contents(want, have)
    gone = pc.invert(pc.is_in(theirs, value_set=mine)).to_numpy(zero_copy_only=False)
    revoked = have.where(gone)
    return Changes.joined(
        [
            Changes(revoked, emitted.revision[gone], np.full(len(revoked), -1, np.int64)),
            _added(want, mine, theirs, emitted),
        ]
    )


def newly(more: Results, emitted: Emitted) -> Changes:
    """Additions for results missing from ``emitted``; other results there stay."""
    mine, theirs = _contents(more, emitted.net)
    return _added(more, mine, theirs, emitted)


def _added(want: Results, mine: pa.Array, theirs: pa.Array, emitted: Emitted) -> Changes:
    new = pc.invert(pc.is_in(mine, value_set=theirs)).to_numpy(zero_copy_only=False)
    return _next(want.where(new), emitted)


def _next(added: Results, emitted: Emitted) -> Changes:
    """Additions, each with its next revision."""
    return Changes(added, emitted.last(added.id) + 1, np.ones(len(added), np.int64))


def _revisions_of(ids: pa.Array, known: pa.Array, last: IntArray) -> IntArray:
    at = pc.index_in(ids, value_set=known).fill_null(-1).to_numpy(zero_copy_only=False)
    revision: IntArray = np.append(last, -1)[at]  # index -1: never emitted
    return revision


class Removals(NamedTuple):
    dropped: int
    deleted: int
    rewritten: int
    truncated: int

    @classmethod
    def of(cls, state: StreamState) -> Removals:
        return cls(state.dropped, state.deleted, state.rewritten, state.truncated)

    def spare(self, state: StreamState, first: int | None) -> bool:
        """Whether no event from tick ``first`` on was removed since (None: no event matters)."""
        now = Removals.of(state)
        if now == self:
            return True
        if now[1:] != self[1:]:
            return False
        return first is None or (state.dropped_before is not None and state.dropped_before <= first)


def removals_of(moment: Mapping[str, Snapshot], streams: Sequence[str]) -> dict[str, Removals]:
    return {name: Removals.of(moment[name].state) for name in streams}


def spared(gone: Mapping[str, Removals], moment: Mapping[str, Snapshot], first: int | None) -> bool:
    """Whether no event of any stream from tick ``first`` on was removed since."""
    return all(each.spare(moment[name].state, first) for name, each in gone.items())
