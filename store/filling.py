"""Filling: a stream that begins with its events.

Guarantee
    The stream is there with all of its events, or it is not there; after any accident, too.  It is
    made in a directory that no stream has, of which the next opening removes what is left, and
    has its name when it is whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa

from ..schema import StreamSchema
from .catalog import SegmentEntry
from .creation import initialise
from .file_contract import Files
from .options import StreamOptions
from .sorted_segments import sorted_segments
from .staging import StagingPlan, abort_staged, new_job, prepare_staging

__all__ = ["HIDDEN", "filled_directory", "hidden_directory"]

HIDDEN = ".dropped-"
"""How the directory of a stream begins that is being made, or dropped; no other stream's does."""


def hidden_directory() -> str:
    """A new directory that nobody takes for a stream."""
    return f"streams/{HIDDEN}{uuid.uuid4().hex}"


@contextmanager
def filled_directory(
    files: Files,
    name: str,
    schema: StreamSchema,
    options: StreamOptions,
    events: pa.Table | Iterable[pa.RecordBatch],
) -> Iterator[str]:
    """A hidden directory that is a stream in all but its place; removed, if it is still there.

    Parameters
    ----------
    name : str
        Of the stream.
    events : pyarrow.Table or iterable of pyarrow.RecordBatch
        In the schema's columns, in any order; of the latter a few are held at a time.

    Raises
    ------
    AttributeNotFound, InvalidArgument, InvalidData, StorageFull, StorageFailed
    """
    if isinstance(events, pa.Table):
        events = events.to_batches() or [pa.RecordBatch.from_pylist([], events.schema)]
    batches, hidden = events, hidden_directory()

    def fill() -> Sequence[SegmentEntry]:
        plan = StagingPlan(hidden, new_job(), schema, options)
        prepare_staging(files, plan)
        staged = sorted_segments(files, plan, batches)
        for item in staged:
            files.link(item.file, f"{hidden}/{item.entry.file}")
        abort_staged(files, hidden, plan.job)
        files.sync_directory(hidden)
        return [item.entry for item in staged]

    try:
        initialise(files, hidden, name, schema, options, fill=fill)
        yield hidden
    finally:
        with suppress(Exception):  # removed at the next opening if not now
            files.remove_tree(hidden)
