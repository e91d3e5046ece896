"""Runs of staged segments, built by the tasks of a bulk load and ingested by the writer::

    <stream>/staging/<job>/indexes.json             attributes and identifiers of the indexes
    <stream>/staging/<job>/<part>-<id>.seg.runs     RocksDB table: the keys of ``storage``

Files are ingested *before* the commit, if the definitions are still those announced, so its
segments are indexed when they become visible; runs of segments that do not enter the base are
removed after it, or at the next opening.  Index errors never fail a load.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import ChronicleError
from ..schema import StreamSchema
from ..store.file_contract import Files
from ..store.leaf_map import leaf_map
from ..store.segment import SegmentView
from ..store.staging import StagedSegment
from ..store.stream import EventStream
from .definitions import has_indexes
from .index_key import index_key
from .runs import RUN_EVENTS
from .storage import TIMES, write_table
from .stream_indexes import Entries, StreamIndexes, run_of

logger = logging.getLogger("chronicle.indexes")

DEFINITIONS = "indexes.json"
SUFFIX = ".runs"


def announce(files: Files, directory: str, place: str) -> None:
    """Publish the stream's index definitions for the tasks of a job (driver)."""
    path, target = _indexes_of(files, directory), files.local_path(f"{place}/{DEFINITIONS}")
    if path is None or target is None:
        return
    try:
        indexes = StreamIndexes(path, False)
        try:
            identifiers = indexes.identifiers
        finally:
            indexes.close()
    except ChronicleError as error:
        logger.warning("%s: new segments are not indexed by the load: %s", directory, error)
        return
    if identifiers:
        Path(target).write_text(json.dumps(identifiers), encoding="utf-8")


def build_staged(
    files: Files, place: str, staged: Sequence[StagedSegment], schema: StreamSchema
) -> int:
    """Write the runs of staged segments beside them (task); returns the number of files."""
    target = files.local_path(place)
    if target is None:
        return 0
    try:
        identifiers: dict[str, int] = json.loads((Path(target) / DEFINITIONS).read_bytes())
    except FileNotFoundError:
        return 0
    written = 0
    for item in staged:
        path = files.local_path(item.file)
        assert path is not None
        view = SegmentView.open_sealed(files, item.file, item.entry.id, schema)
        try:
            write_table(Path(path + SUFFIX), _entries(view, identifiers, schema))
            written += 1
        except ChronicleError as error:
            logger.warning("%s is loaded without its runs: %s", item.file, error)
        finally:
            view.close()
    return written


def _entries(view: SegmentView, identifiers: dict[str, int], schema: StreamSchema) -> Entries:
    leaves = leaf_map(view)
    entries: Entries = []
    for first in range(0, view.events, RUN_EVENTS):
        end = min(first + RUN_EVENTS, view.events)
        entries += run_of(leaves, TIMES, None, first, end, 0)[1]
        for name, index in identifiers.items():
            entries += run_of(leaves, index, index_key(name, schema), first, end, 0)[1]
    return entries


@contextmanager
def taking_over(
    stream: EventStream,
    job: str,
    staged: Sequence[StagedSegment],
    indexes: StreamIndexes | None = None,
) -> Iterator[None]:
    """A context for the commit of a job, which adds its runs to the stream's indexes."""
    files, directory = stream.commits.files, stream.commits.directory
    opened: StreamIndexes | None = None
    try:
        path = _indexes_of(files, directory)
        paths = _paths(files, staged) if path is not None else []
        if path is not None and paths:
            if indexes is None:
                opened = indexes = StreamIndexes(path, True)
            announced = files.local_path(f"{directory}/staging/{job}/{DEFINITIONS}")
            assert announced is not None
            if json.loads(Path(announced).read_bytes()) == indexes.identifiers:
                indexes.take_over(paths)
    except (ChronicleError, OSError, ValueError) as error:
        logger.warning("%s: the load's runs are not taken over: %s", stream.name, error)
    try:
        yield
    finally:
        try:
            if indexes is not None:
                indexes.forget(stream.snapshot().state)
                indexes.flush()
        except ChronicleError as error:
            logger.warning("%s: indexes are brought up to date later: %s", stream.name, error)
        finally:
            if opened is not None:
                opened.close()


def _indexes_of(files: Files, directory: str) -> Path | None:
    place = files.local_path(f"{directory}/indexes")
    return None if place is None or not has_indexes(Path(place)) else Path(place)


def _paths(files: Files, staged: Sequence[StagedSegment]) -> list[Path]:
    paths = []
    for item in staged:
        path = files.local_path(item.file + SUFFIX)
        if path is not None and Path(path).exists():
            paths.append(Path(path))
    return paths
