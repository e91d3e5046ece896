"""Results as columns, and the difference between what should be put out and what was.

Purpose
    :class:`Results` are rows of a query with their times and identities.  :func:`difference`
    compares what a query says over a region with what stands in its sink, and says what is to be
    taken back and what is to be added; it is what makes a live query right, however it came to what
    it has said.

Guarantee
    Equal results cost nothing.  A result that is taken back is taken back as it was said, byte for
    byte.  Applied twice, the second difference is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.identity import digests, row_words
from ..query.run.net_operator import settled
from ..store.tail import ticks_of_column
from ..store.tap import Spans

__all__ = ["Changes", "Corrected", "Results", "Said", "beyond", "difference", "newly"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Results:
    """Rows of a query.

    Attributes
    ----------
    time : int64 array
        Ticks: the ``_time`` of each.
    id : pyarrow.Array
        Its identity, 16 bytes.
    columns : pyarrow.Table
        What it consists of.
    """

    time: IntArray
    id: pa.Array
    columns: pa.Table

    def __len__(self) -> int:
        return len(self.time)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Results:
        """Some of them."""
        if chosen.all():
            return self
        mask = pa.array(chosen)
        return Results(self.time[chosen], self.id.filter(mask), self.columns.filter(mask))

    @staticmethod
    def joined(parts: Sequence[Results]) -> Results:
        """Several, one after the other; at least one."""
        return Results(
            np.concatenate([part.time for part in parts]),
            pa.concat_arrays([part.id for part in parts]),
            pa.concat_tables([part.columns for part in parts]),
        )


@dataclass(frozen=True)
class Corrected:
    """What late events make of results that were known.

    Attributes
    ----------
    ids : pyarrow.Array
        Identities of those that may not hold any more, and ``time``: when they were said to be.
    found : Results
        What holds instead; some may be as they were.
    rest : tuple of (int, int)
        Times of results that are not among these: regions that are to be evaluated.
    """

    ids: pa.Array
    time: IntArray
    found: Results
    rest: Spans = ()


@dataclass(frozen=True)
class Said:
    """What a sink says of a region.

    Attributes
    ----------
    net : Results
        What holds.
    revision : int64 array
        Of each of these.
    last : callable
        From identities to the greatest revision that was ever said there of each, -1 without one.
    """

    net: Results
    revision: IntArray
    last: Callable[[pa.Array], IntArray]

    @classmethod
    def of(cls, changes: pa.RecordBatch, columns: tuple[str, ...]) -> Said:
        """Fold changes, in the order of time, ties as they were said."""
        revisions = changes.column("_rev").to_numpy(zero_copy_only=False).astype(np.int64)
        coded = pc.dictionary_encode(changes.column("_id"))
        last = np.full(len(coded.dictionary), -1, np.int64)
        np.maximum.at(last, coded.indices.to_numpy(zero_copy_only=False), revisions)
        net = settled(changes) if changes.num_rows else changes
        results = Results(
            ticks_of_column(net.column("_time")), net.column("_id"),
            pa.Table.from_batches([net.select(list(columns))]),
        )  # fmt: skip
        kept = net.column("_rev").to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(results, kept, lambda ids: _of_known(ids, coded.dictionary, last))

    def named(self, ids: pa.Array) -> Said:
        """Of what holds only that with some identities."""
        mine = pc.is_in(self.net.id, value_set=ids).to_numpy(zero_copy_only=False)
        return self.where(mine)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Said:
        """Of what holds only some."""
        return Said(self.net.where(chosen), self.revision[chosen], self.last)

    @classmethod
    def anew(cls, results: Results) -> Said:
        """What was said, as it would be said now; all of one version, the first."""
        return cls(results, np.zeros(len(results), np.int64), lambda ids: np.full(len(ids), -1))


@dataclass(frozen=True)
class Changes:
    """What is put out in a step, in this order: what is taken back, then what is added.

    Attributes
    ----------
    sign : int64 array
        -1 or +1.
    """

    results: Results
    revision: IntArray
    sign: IntArray

    def __len__(self) -> int:
        return len(self.sign)

    @classmethod
    def added(cls, results: Results) -> Changes:
        """Results that were never said before."""
        count = len(results)
        return cls(results, np.zeros(count, np.int64), np.ones(count, np.int64))

    @classmethod
    def joined(cls, parts: list[Changes]) -> Changes:
        """Several, one after the other; at least one."""
        return cls(
            Results.joined([part.results for part in parts]),
            np.concatenate([part.revision for part in parts]),
            np.concatenate([part.sign for part in parts]),
        )


def _contents(*each: Results) -> list[pa.Array]:
    """Identity and everything else of each result, as bytes that can be compared."""
    columns = [[pa.array(some.time), *some.columns.columns] for some in each]
    words = [row_words(some.id, held) for some, held in zip(each, columns, strict=True)]
    if all(found is not None for found in words):
        return words
    return [
        pc.binary_join_element_wise(some.id, digests(b"", held), b"")
        for some, held in zip(each, columns, strict=True)
    ]


def difference(want: Results, said: Said) -> Changes:
    """What makes the net of a region equal to what is wanted.

    Parameters
    ----------
    want : Results
        All that should hold in the region.
    said : Said
        Of the same region.
    """
    have = said.net
    mine, theirs = _contents(want, have)
    gone = pc.invert(pc.is_in(theirs, value_set=mine)).to_numpy(zero_copy_only=False)
    revoked = have.where(gone)
    return Changes.joined(
        [
            Changes(revoked, said.revision[gone], np.full(len(revoked), -1, np.int64)),
            _added(want, mine, theirs, said),
        ]
    )


def beyond(results: Results, others: Results) -> Results:
    """Those of some results that are not among others."""
    mine, theirs = _contents(results, others)
    held = pc.is_in(mine, value_set=theirs)
    return results.where(pc.invert(held).to_numpy(zero_copy_only=False))


def newly(more: Results, said: Said) -> Changes:
    """What is to be added for more results in a region, whatever else holds there."""
    mine, theirs = _contents(more, said.net)
    return _added(more, mine, theirs, said)


def _added(want: Results, mine: pa.Array, theirs: pa.Array, said: Said) -> Changes:
    """Those that do not hold, each as the version after its last."""
    added = want.where(pc.invert(pc.is_in(mine, value_set=theirs)).to_numpy(zero_copy_only=False))
    return Changes(added, said.last(added.id) + 1, np.ones(len(added), np.int64))


def _of_known(ids: pa.Array, known: pa.Array, last: IntArray) -> IntArray:
    at = pc.index_in(ids, value_set=known).fill_null(-1).to_numpy(zero_copy_only=False)
    found: IntArray = np.append(last, -1)[at]  # the place -1 is that of the ones never said
    return found
