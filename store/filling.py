"""Filling: a stream that begins with its events.

Guarantee
    The stream is there with all of its events, or it is not there; after any accident, too.  It is
    made in a directory that no stream has, of which the next opening removes what is left, and
    has its name when it is whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa

from ..schema import StreamSchema
from .catalog import SegmentEntry, StreamManifest
from .conform import AppendRules, conform
from .creation import initialise
from .duplicates import unique_events
from .file_contract import Files
from .merge import sort_nearly
from .options import StreamOptions, uniqueness
from .staging import StagingPlan, abort_staged, new_job, prepare_staging, stage
from .tail import is_sorted, ticks_of

__all__ = ["HIDDEN", "filled_directory", "hidden_directory"]

HIDDEN = ".dropped-"
"""How the directory of a stream begins that is being made, or dropped; no other stream's does."""

PIECE_EVENTS = 1 << 20


def hidden_directory() -> str:
    """A new directory that nobody takes for a stream."""
    return f"streams/{HIDDEN}{uuid.uuid4().hex}"


@contextmanager
def filled_directory(
    files: Files, name: str, schema: StreamSchema, options: StreamOptions, events: pa.Table
) -> Iterator[str]:
    """A hidden directory that is a stream in all but its place; removed, if it is still there.

    Parameters
    ----------
    name : str
        Of the stream.
    events : pyarrow.Table
        In the schema's columns, and in any order.

    Raises
    ------
    AttributeNotFound, InvalidArgument, InvalidData, StorageFull, StorageFailed
    """
    batch = conform(events, AppendRules.of(StreamManifest(name, schema, options)))
    if batch.num_rows and not is_sorted(ticks := ticks_of(batch, schema)):
        batch = sort_nearly(batch, ticks)
    rule = uniqueness(options, schema)
    if rule is not None and batch.num_rows:
        batch = unique_events(batch, rule, schema)
    hidden = hidden_directory()

    def fill() -> Sequence[SegmentEntry]:
        plan = StagingPlan(hidden, new_job(), schema, options)
        prepare_staging(files, plan)
        starts = range(0, batch.num_rows, PIECE_EVENTS)
        staged = stage(files, plan, 0, [iter([batch.slice(at, PIECE_EVENTS) for at in starts])])
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
