"""Edits: a change of a stream as one value, which :meth:`~.commits.Commits.apply` installs.

Purpose
    Who changes a stream (an append, a seal, a spill, a compaction, a bulk load, a new attribute)
    makes the files that it needs, says in an :class:`Edit` what the stream is afterwards, and has
    it applied.  Nothing else changes what a stream is.

Layout
    ::

        edit             what makes it durable
        record           that record, once the log is synced: few events, or leaves
        manifest         manifest and log, replaced together: everything else
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..schema import StreamSchema
from .catalog import StreamManifest, segment_name
from .file_contract import Files
from .journal import Journal, RecordKind
from .layout import table_rows
from .options import StreamOptions
from .segment import SegmentFile, SegmentView
from .segment_views import ViewSource
from .segment_writer import Extent, SegmentWriter

__all__ = ["ActiveSegment", "Edit"]


class ActiveSegment(NamedTuple):
    """A segment that is being written, and the same file as readers have it."""

    writer: SegmentWriter
    file: SegmentFile

    @classmethod
    def begin(
        cls, files: Files, directory: str, number: int, schema: StreamSchema, options: StreamOptions
    ) -> ActiveSegment:
        """Begin a file, in place of one of that name which a crash has left."""
        path = f"{directory}/{segment_name(number)}"
        with suppress(FileNotFoundError):
            files.remove(path)
        writer = SegmentWriter(files, path, number, schema, options.codec, options.leaf_bytes)
        return cls(writer, SegmentFile(files, path, number, schema))

    @classmethod
    def resume(
        cls,
        files: Files,
        directory: str,
        extent: Extent,
        schema: StreamSchema,
        options: StreamOptions,
    ) -> ActiveSegment:
        """Go on where the last commit has left a file."""
        path = f"{directory}/{segment_name(extent.segment_id)}"
        file = SegmentFile(files, path, extent.segment_id, schema)
        flank = dict(SegmentView.open_extent(file, extent).fragments)
        none = np.zeros((table_rows(schema), 0), np.int64)
        writer = SegmentWriter.resume(
            files,
            path,
            schema,
            options.codec,
            options.leaf_bytes,
            extent,
            [flank.get(level, none) for level in range(1, len(extent.levels) + 1)],
            {name: file.dictionary(name, pages) for name, pages in extent.pages.items() if pages},
        )
        return cls(writer, file)

    def view(self, extent: Extent) -> SegmentView:
        """What of it is committed, for readers; the writer stands there."""
        self.file.data(extent.length)
        flank = [(level.level, np.ascontiguousarray(level.view())) for level in self.writer.levels]
        return SegmentView.of_flank(self.file, flank, extent)


@dataclass(frozen=True, eq=False)
class Edit:
    """What a stream is after a change.

    Attributes
    ----------
    active : ActiveSegment or None
        There is one where the journal has an extent.
    manifest : StreamManifest or None
        None where the record says all that changes.
    views : mapping of int to SegmentView
        Of segments and late runs that the manifest names and the one before does not.
    record : (RecordKind, parts) or None
        For the log.
    added : (pyarrow.RecordBatch, int, int) or None
        Events that the record brings into the tail, as :meth:`~.tail.Tail.add` takes them.
    left : tuple of str
        Files that readers of earlier versions alone may want.
    source : ViewSource or None
        Makes the views of all segments from now on, where they are read in another way.
    """

    journal: Journal
    active: ActiveSegment | None
    manifest: StreamManifest | None = None
    views: Mapping[int, SegmentView] = field(default_factory=dict)
    record: tuple[RecordKind, list[Any]] | None = None
    added: tuple[pa.RecordBatch, int, int] | None = None
    left: tuple[str, ...] = ()
    source: ViewSource | None = None
