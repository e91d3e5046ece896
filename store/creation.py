"""Creates a stream in a directory; it exists once its manifest does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..schema import StreamSchema
from .catalog import StreamManifest, first_id, new_identity
from .file_contract import Files
from .journal import Journal, begin_log
from .manifest import write_manifest
from .options import StreamOptions, settled
from .segment_list import SegmentEntry, SegmentList


def _empty() -> Sequence[SegmentEntry]:
    return ()


def initialise(
    files: Files,
    directory: str,
    name: str,
    schema: StreamSchema,
    options: StreamOptions,
    owner: str | None = None,
    fill: Callable[[], Sequence[SegmentEntry]] = _empty,
) -> None:
    """Make a directory a stream; ``fill`` adds first segments; ``owner`` alone may change it."""
    options = settled(options, schema)
    files.remove_tree(directory)  # leftovers of an interrupted creation
    files.make_directory(directory)
    segments = SegmentList.of(fill())
    events = int(segments.events.sum())
    identity = new_identity()
    journal = replace(Journal.empty(schema), events=events, identity=identity)
    if len(segments):
        journal = replace(journal, position=1, last=segments[-1].last)
    begin_log(files, directory, 1, journal).close()
    manifest = StreamManifest(
        name,
        schema,
        options,
        next_id=first_id(identity),
        segments=segments,
        events=events,
        position=journal.position,
        owner=owner,
    )
    write_manifest(files, directory, manifest.to_json())
