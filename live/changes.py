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

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..identity import digests
from ..query.run.net_operator import settled
from ..store.tail import ticks_of_column

__all__ = ["Changes", "Results", "Said", "difference", "newly"]

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


@dataclass(frozen=True)
class Said:
    """What a sink says of a region.

    Attributes
    ----------
    net : Results
        What holds.
    revision : int64 array
        Of each of these.
    ids : pyarrow.Array
        Of everything that was ever said there, and ``last`` the greatest revision of each.
    """

    net: Results
    revision: IntArray
    ids: pa.Array
    last: IntArray

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
        return cls(results, kept, coded.dictionary, last)

    @classmethod
    def anew(cls, results: Results) -> Said:
        """What was said, as it would be said now; all of one version, the first."""
        count = len(results)
        ids = results.id.combine_chunks() if isinstance(results.id, pa.ChunkedArray) else results.id
        return cls(results, np.zeros(count, np.int64), ids, np.full(count, -1, np.int64))


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
        results = Results(
            np.concatenate([part.results.time for part in parts]),
            pa.concat_arrays([part.results.id for part in parts]),
            pa.concat_tables([part.results.columns for part in parts]),
        )
        return cls(
            results,
            np.concatenate([part.revision for part in parts]),
            np.concatenate([part.sign for part in parts]),
        )


def _contents(results: Results) -> pa.Array:
    """Identity and everything else of each result, as bytes that can be compared."""
    held = [pa.array(results.time), *(column for column in results.columns.columns)]
    return pc.binary_join_element_wise(results.id, digests(b"", held), b"")


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
    mine, theirs = _contents(want), _contents(have)
    gone = pc.invert(pc.is_in(theirs, value_set=mine)).to_numpy(zero_copy_only=False)
    revoked = have.where(gone)
    return Changes.joined(
        [
            Changes(revoked, said.revision[gone], np.full(len(revoked), -1, np.int64)),
            _added(want, mine, theirs, said),
        ]
    )


def newly(more: Results, said: Said) -> Changes:
    """What is to be added for more results in a region, whatever else holds there."""
    return _added(more, _contents(more), _contents(said.net), said)


def _added(want: Results, mine: pa.Array, theirs: pa.Array, said: Said) -> Changes:
    """Those that do not hold, each as the version after its last."""
    added = want.where(pc.invert(pc.is_in(mine, value_set=theirs)).to_numpy(zero_copy_only=False))
    known = pc.index_in(added.id, value_set=said.ids).fill_null(-1)
    at = known.to_numpy(zero_copy_only=False)
    before = np.append(said.last, -1)[at]  # the place -1 is that of the ones never said
    return Changes(added, before + 1, np.ones(len(added), np.int64))
