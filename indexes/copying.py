"""The indexes of a copy of a stream, as a backup has it.

Purpose
    :func:`copy_indexes` writes the definitions of a stream's indexes, and the runs that are true of
    the copy, into an index database of the copy's own.

Guarantee
    A run stands for positions of a segment, and a segment keeps its identifier in the copy.  What
    the copy has of it is a beginning; a run that ends within it is true there for ever, however
    the original and the copy grow apart.  A run whose blocks are replaced while they are read is
    left out: its descriptor, read last, tells.

Limits
    Runs are copied, not linked: RocksDB's files hold those of all segments.  What is left out is
    built when the copy is opened for writing.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import ChronicleError, StorageFailed
from ..store.snapshot import StreamState
from .storage import IndexStorage, descriptor_key, time_key
from .stream_indexes import StreamIndexes, blocks_of, definition_of, descriptor_of

__all__ = ["copy_indexes"]


def copy_indexes(indexes: StreamIndexes, path: Path, state: StreamState) -> None:
    """Write what is true of a copy of a stream as the indexes of that copy.

    Parameters
    ----------
    indexes : StreamIndexes
        Of the original.
    path : Path
        ``<copy of the stream>/indexes``, a new directory.
    state : StreamState
        The copy's.

    Raises
    ------
    StorageFailed
        When they cannot be written; the copy is whole without them.
    """
    try:
        target = IndexStorage(path, True)
        try:
            _copy(indexes, target, state)
        finally:
            target.close()
    except ChronicleError:
        raise
    except Exception as error:
        raise StorageFailed(
            f"the indexes cannot be copied to {path}: {error}; the copy is whole without them: "
            "remove that directory, and create them in the copy"
        ) from error


def _copy(indexes: StreamIndexes, target: IndexStorage, state: StreamState) -> None:
    alive = {view.file.segment_id: view.events for view in state.segments}
    limits = indexes.limits
    catalogue = indexes.catalogue()
    for name, index in catalogue.attributes.items():
        if name in state.schema:
            target.write([definition_of(name, index, limits.get(name))])
    for times in (t for listed in catalogue.times.values() for t in listed):
        key = time_key(times.segment, times.first, times.generation)
        packed = indexes.stored(key)
        if times.end <= alive.get(times.segment, 0) and packed is not None:
            target.write([(key, packed), descriptor_of(times)])
    for run in (r for listed in catalogue.runs.values() for r in listed):
        if run.end > alive.get(run.segment, 0):
            continue
        blocks = [(key, indexes.stored(key)) for key in blocks_of(run)]
        key, descriptor = descriptor_key(run.index, run.segment, run.first), run.to_bytes()
        if indexes.stored(key) == descriptor:
            target.write([*((k, v) for k, v in blocks if v is not None), (key, descriptor)])
