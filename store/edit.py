"""Edits: the state after a change as one value, which ``commits.Commits.apply`` installs.

A ``record`` is durable once the log is synced; a ``manifest`` replaces manifest and log together.
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
    """The segment that is being written, with its reader's view of the file."""

    writer: SegmentWriter
    file: SegmentFile

    @classmethod
    def begin(
        cls, files: Files, directory: str, number: int, schema: StreamSchema, options: StreamOptions
    ) -> ActiveSegment:
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
        """The committed part for readers; the writer must stand at the extent."""
        self.file.data(extent.length)
        flank = [(level.level, np.ascontiguousarray(level.view())) for level in self.writer.levels]
        return SegmentView.of_flank(self.file, flank, extent)


@dataclass(frozen=True, eq=False)
class Edit:
    """The state of a stream after a change.

    ``manifest``: None when the record contains the whole change.
    ``views``: of segments and late runs that are new in the manifest.
    ``added``: events that the record adds to the tail: arguments of ``tail.Tail.add``.
    ``left``: files that only readers of earlier versions need.
    ``source``: replaces the source of all views, when segments are to be read differently.
    """

    journal: Journal
    active: ActiveSegment | None
    manifest: StreamManifest | None = None
    views: Mapping[int, SegmentView] = field(default_factory=dict)
    record: tuple[RecordKind, list[Any]] | None = None
    added: tuple[pa.RecordBatch, int, int] | None = None
    left: tuple[str, ...] = ()
    source: ViewSource | None = None
