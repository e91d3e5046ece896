"""Creates a stream together with its first events, atomically: built in a hidden directory,
renamed.
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
"""Prefix of directories of streams being created or dropped."""


def hidden_directory() -> str:
    return f"streams/{HIDDEN}{uuid.uuid4().hex}"


@contextmanager
def filled_directory(
    files: Files,
    name: str,
    schema: StreamSchema,
    options: StreamOptions,
    events: pa.Table | Iterable[pa.RecordBatch],
) -> Iterator[str]:
    """A hidden directory with a complete stream, removed on exit if it is still there."""
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
        with suppress(Exception):  # the next opening removes it otherwise
            files.remove_tree(hidden)
