"""The indexes of a copy of a stream, as a backup has it.

Purpose
    :func:`copy_indexes` writes the definitions of a stream's indexes, and the runs that are true of
    the copy, into an index database of the copy's own.

Guarantee
    A run stands for positions of a segment, and a segment keeps its identifier in the copy.  What
    the copy has of it is a beginning; a run that ends within it is true there for ever, however
    the original and the copy grow apart.  A run that is replaced while it is read, or that does not
    read, is left out.

Limits
    Runs are copied, not linked: RocksDB's files hold those of all segments.  What is left out is
    built when the copy is opened for writing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..errors import AttributeNotFound
from ..store.segment_views import sizes_of
from ..store.snapshot import StreamState
from . import definitions
from .catalogue import RunsChanged, blocks_of, descriptor_of
from .index_key import index_key
from .opened import OpenedIndexes
from .storage import IndexStorage, block_key, descriptor_key, time_key

__all__ = ["copy_indexes"]


def copy_indexes(indexes: OpenedIndexes, path: Path, state: StreamState) -> None:
    """Write what is true of a copy of a stream as the indexes of that copy.

    Parameters
    ----------
    indexes : OpenedIndexes
        Of the original.
    path : Path
        ``<copy of the stream>/indexes``, a new directory.
    state : StreamState
        The copy's.

    Raises
    ------
    StorageFull, StorageFailed
        When they cannot be written; the copy is whole without them.
    """
    alive = {segment: events for segment, events, _ in sizes_of(state.segments)}
    known = indexes.definitions
    for name in indexes.attributes:
        try:
            index_key(name, state.schema)
        except AttributeNotFound:  # younger than the copy
            known = known.without(name)
    target = IndexStorage(path, True)
    try:
        target.write(definitions.copy_of(known))
        for entries in _copied(indexes, alive):
            target.write(entries)
    finally:
        target.close()
    definitions.replace(path, known)


def _copied(indexes: OpenedIndexes, alive: dict[int, int]) -> Iterator[list[tuple[bytes, bytes]]]:
    """What makes up each range of times and each run, the descriptor last."""
    catalogue = indexes.catalogue()
    for times in (t for listed in catalogue.times.values() for t in listed):
        if times.end <= alive.get(times.segment, 0):
            with suppress(RunsChanged):
                key = time_key(times.segment, times.first, times.generation)
                yield [(key, indexes.times(times).tobytes()), descriptor_of(times)]
    for run in (r for listed in catalogue.runs.values() for r in listed):
        if run.end > alive.get(run.segment, 0):
            continue
        at = (run.index, run.segment, run.first)
        with suppress(RunsChanged):
            blocks = [
                (block_key(kind, *at, run.generation, number), indexes.block(kind, run, number))
                for kind, number in blocks_of(run)
            ]
            yield [*blocks, (descriptor_key(*at), run.to_bytes())]
