"""Copies the indexes of a stream into a backup.

A run that ends within the copy's part of its segment stays valid there.  Runs that are replaced
during the copy, or unreadable, are rebuilt when the copy is opened for writing.  Runs are copied,
not linked: RocksDB files mix those of all segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ..errors import AttributeNotFound
from ..schema import StreamSchema
from . import definitions
from .catalogue import RunsChanged, blocks_of, descriptor_of
from .index_key import index_key
from .opened import OpenedIndexes
from .storage import IndexStorage, block_key, descriptor_key, time_key

__all__ = ["copy_indexes"]


def copy_indexes(
    indexes: OpenedIndexes, path: Path, schema: StreamSchema, alive: Mapping[int, int]
) -> None:
    """Write the runs valid in a copy; ``alive`` has the number of events of its segments."""
    known = indexes.definitions
    for name in indexes.attributes:
        try:
            index_key(name, schema)
        except AttributeNotFound:  # newer than the copy
            known = known.without(name)
    target = IndexStorage(path, True)
    try:
        target.write(definitions.copy_of(known))
        for entries in _copied(indexes, alive):
            target.write(entries)
    finally:
        target.close()
    definitions.replace(path, known)


def _copied(
    indexes: OpenedIndexes, alive: Mapping[int, int]
) -> Iterator[list[tuple[bytes, bytes]]]:
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
