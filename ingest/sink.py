"""Bulk loads, as used by the command line, Spark and the server's transactions.

Parts of a *job* are staged invisibly, and one atomic, idempotent commit makes them visible
(``chronicle.store.staging``).  Sinks have the same methods, of which ``new_job``, ``prepare``,
``commit`` and ``abort`` are for the driver, and ``stage`` for executors.  A commit with a
``version`` not above the last one of its ``application`` does nothing.  Up to ``append_rows``
events are appended instead of staged.  Sinks and jobs are picklable::

    driver      new_job, prepare ---- job ----.                    .--> commit (or abort)
    executors                                 '--> stage, stage ---'
                                                    |
                    StoreSink:   segments in <store>/streams/<s>/staging/<job>
                    ServerSink:  Arrow to the server, which stages the segments
"""

from __future__ import annotations

from dataclasses import dataclass

from ..schema import StreamSchema
from ..store.staging import StagingPlan

Over = tuple[int | None, int | None]
"""Time range to replace: ticks, half-open; None leaves a side open."""


@dataclass(frozen=True)
class Job:
    """A load to be staged; ``plan`` and ``newest`` (tick of the newest event) are for a store."""

    name: str
    schema: StreamSchema
    plan: StagingPlan | None = None
    newest: int | None = None


@dataclass(frozen=True)
class Outcome:
    """Result of an append or a commit; ``count`` and ``position`` (of the commit) are after it.

    ``late`` events were older than stored ones; ``duplicates`` were skipped by ``unique``;
    ``repeated``: it had been committed before, with these figures.
    """

    events: int
    late: int
    count: int | None = None
    position: int | None = None
    repeated: bool = False
    duplicates: int = 0
