"""The checker (``chronicle check``): reads and recomputes everything, and goes on after a problem.

It walks each tree from its root, compares each checksum, recomputes each zone and entry from the
events, and verifies order, counts and the manifest.  As slow as a full scan, memory bounded by a
leaf.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.json_text import is_json, read_json
from ..errors import ChronicleError, CorruptStore
from ..schema import StreamSchema
from .block import open_block
from .catalog import StreamManifest, log_name
from .columns import ColumnView
from .file_contract import Files
from .layout import (
    ROW_ATTRIBUTES,
    ROW_FIRST,
    ROW_LAST,
    ROW_LENGTH,
    ROW_OFFSET,
    ROWS_PER_ATTRIBUTE,
    ValueKind,
    value_kind,
)
from .leaf import LeafReader, entry_of_table, zone_table
from .lock import ReaderLease
from .manifest_pages import PAGE
from .node import read_node
from .pins import sizes
from .progress import each
from .recovery import Recovered, load
from .segment import SegmentView
from .segment_file import SegmentFile
from .segment_list import segment_name
from .segment_views import OPENED_MAX, open_entry


@dataclass(frozen=True)
class Problem:
    """An inconsistency; ``file`` is relative to the store, ``what`` says expected and actual."""

    stream: str
    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.stream}: {self.file}: {self.what}"


@dataclass
class CheckReport:
    """Result of a check: how much was verified, harmless ``notes``, and problems (after a repair,
    the remaining ones).  ``replaced_files``, replaced but read, may hold some of the
    ``deleted_events``.
    """

    streams: int = 0
    segments: int = 0
    blocks: int = 0
    events: int = 0
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    lost_events: int = 0
    deleted_events: int = 0
    replaced_files: int = 0

    def add(self, other: CheckReport) -> None:
        for name, more in vars(other).items():
            setattr(self, name, getattr(self, name) + more)

    @property
    def ok(self) -> bool:
        return not self.problems


def check_stream(
    files: Files,
    directory: str,
    name: str,
    report: CheckReport,
    quiet: AbstractContextManager[Any] | None = None,
) -> None:
    """Check one stream; ``quiet`` holds back a writer while files are chosen and opened."""
    report.streams += 1
    views: list[tuple[SegmentView, str]] = []
    with ExitStack() as opened:
        with quiet or nullcontext():
            try:
                loaded = load(files, directory)
            except (ChronicleError, OSError) as error:
                report.problems.append(Problem(name, f"{directory}/MANIFEST", str(error)))
                return
            _check_journal(directory, name, loaded, report)
            for path, view in _opened(files, directory, name, loaded, report, opened):
                opened.callback(view.close)
                views.append((view, path))
            _check_leftovers(files, directory, loaded.manifest, loaded.journal.extent, report)
        for view, path in each(views):
            check_view(view, name, path, report)
            view.close()


def _check_journal(directory: str, name: str, loaded: Recovered, report: CheckReport) -> None:
    manifest, journal = loaded.manifest, loaded.journal
    for _, reason in journal.refused:
        report.problems.append(Problem(name, f"{directory}/{log_name(manifest.log)}", reason))
    if loaded.torn:
        report.notes.append(f"{name}: the log ends in an unfinished record (of a crash)")
    for before, after in pairwise(manifest.segments):
        if after.first < before.last:
            what = f"begins at {after.first}, before the end of {before.file} at {before.last}"
            report.problems.append(Problem(name, f"{directory}/{after.file}", what))
    report.deleted_events += manifest.deleted_events
    report.events += journal.logged


def _opened(
    files: Files,
    directory: str,
    name: str,
    loaded: Recovered,
    report: CheckReport,
    opened: ExitStack,
) -> Iterator[tuple[str, SegmentView]]:
    manifest, extent = loaded.manifest, loaded.journal.extent
    later = len(manifest.segments) + len(manifest.runs) > OPENED_MAX
    if later:  # too many to have all open at once
        lease = ReaderLease.take(files, directory, manifest.version)
        opened.callback(lease.release)
        later = lease.registered
    for entry in (*manifest.segments, *manifest.runs):
        path = f"{directory}/{entry.file}"
        try:
            view = open_entry(files, directory, manifest, entry, as_written=True, later=later)
            if later:
                view.file.may_close()
            yield path, view
        except (ChronicleError, OSError) as error:
            report.problems.append(Problem(name, path, str(error)))
    if extent is None:
        return
    path = f"{directory}/{segment_name(extent.segment_id)}"
    try:
        file = SegmentFile(files, path, extent.segment_id, manifest.schema)
        file.data(extent.length)  # opens the file
        active = SegmentView.open_extent(file, extent)
    except (ChronicleError, OSError) as error:
        report.problems.append(Problem(name, path, str(error)))
        return
    if manifest.segments and active.events and active.first < manifest.segments[-1].last:
        what = f"begins at {active.first}, before the sealed segments end"
        report.problems.append(Problem(name, path, what))
    yield path, active


def _check_leftovers(
    files: Files, directory: str, manifest: StreamManifest, extent: object, report: CheckReport
) -> None:
    report.replaced_files += len(sizes(files, directory, manifest.garbage))
    named = {*manifest.segments.files(), *(entry.file for entry in manifest.runs)}
    named |= {file for file, _ in manifest.garbage}
    named |= {page.file for page in manifest.segments.pages}
    if extent is not None:
        named.add(segment_name(extent.segment_id))  # type: ignore[attr-defined]
    for deletion in manifest.deletions.recorded:
        try:
            deletion.load(files, directory)
        except FileNotFoundError:
            pass  # no reader can need it any more
        except ChronicleError as error:
            report.notes.append(
                f"{manifest.name}: followers from before commit {deletion.position} begin anew: "
                f"{error}"
            )
    for file in files.list(directory):
        if file.endswith((".seg", ".gone", PAGE)) and file not in named:
            report.notes.append(
                f"{manifest.name}: {directory}/{file} belongs to no commit; the next writer "
                "removes it"
            )


def check_view(view: SegmentView, stream: str, path: str, report: CheckReport) -> None:
    report.segments += 1
    events = 0
    last: int | None = None
    try:
        for level, table in view.fragments:
            for leaf in _walk(view, level, table, report):
                _check_leaf(view, leaf)
                report.blocks += 1
                events += leaf.events
                first = int(leaf.zones[ROW_FIRST, 0])
                if last is not None and first < last:
                    raise CorruptStore(
                        f"the leaf at byte {leaf.offset} begins at {first}, the one before ends "
                        f"at {last}"
                    )
                last = int(leaf.zones[ROW_LAST, -1])
        if events != view.events:
            raise CorruptStore(f"expected {view.events} events, found {events}")
    except (ChronicleError, pa.ArrowInvalid, ValueError, IndexError) as error:
        report.problems.append(Problem(stream, path, str(error)))
    report.events += events


def _walk(
    view: SegmentView, level: int, table: np.ndarray, report: CheckReport
) -> Iterator[LeafReader]:
    """Leaves below an entry table; each entry is compared with its block."""
    file = view.file
    for child in range(table.shape[1]):
        offset, length = int(table[ROW_OFFSET, child]), int(table[ROW_LENGTH, child])
        data = file.block(offset, length)
        frame = open_block(data, offset, file.segment_id, file.path)
        if frame.total_bytes != length or frame.level != level - 1:
            raise CorruptStore(
                f"the block at byte {offset} has level {frame.level} and {frame.total_bytes} "
                f"bytes; its parent says {level - 1} and {length}"
            )
        if level == 1:
            leaf = LeafReader(data, offset, file.segment_id, file.schema, file.path, frame)
            below = leaf.zones
        else:
            below = read_node(data, offset, file.segment_id, file.schema, file.path, frame)
        computed = entry_of_table(file.schema, below, offset, length)
        if not _same(computed.reshape(-1, 1), table[:, child : child + 1], file.schema):
            raise CorruptStore(
                f"the entry for the block at byte {offset} differs from what the block adds up to"
            )
        if level == 1:
            yield leaf
        else:
            report.blocks += 1
            yield from _walk(view, level - 1, below, report)


def _check_leaf(view: SegmentView, leaf: LeafReader) -> None:
    leaf.verify()
    schema = view.file.schema
    columns = []
    for attribute in schema.attributes:
        array = view.column(leaf, attribute.name, 0, leaf.events)
        array.validate(full=True)
        if is_json(array.type) and read_json(array).faults is not None:
            raise CorruptStore(
                f"column {attribute.name!r} of the leaf at byte {leaf.offset} has what is no JSON"
            )
        columns.append(ColumnView(attribute, array))
    ticks = leaf.ticks()
    if np.any(ticks[1:] < ticks[:-1]):
        raise CorruptStore(f"time goes backwards in the leaf at byte {leaf.offset}")
    if not _same(zone_table(schema.time, columns, 0, leaf.events), leaf.zones, schema):
        raise CorruptStore(
            f"the zone table of the leaf at byte {leaf.offset} differs from its events"
        )


def _same(
    computed: npt.NDArray[np.int64], stored: npt.NDArray[np.int64], schema: StreamSchema
) -> bool:
    """Whether entry tables are equal; float sums may differ in the last bits (addition order)."""
    if computed.shape != stored.shape:
        return False
    equal = computed == stored
    for position, attribute in enumerate(schema.payload):
        if value_kind(attribute) is not ValueKind.FLOAT:
            continue
        row = ROW_ATTRIBUTES + ROWS_PER_ATTRIBUTE * position
        ours, theirs = (
            np.ascontiguousarray(table[row + 1 : row + 4]).view(np.float64)
            for table in (computed, stored)
        )
        count = np.maximum(computed[row], 1)
        scale = count * np.maximum(np.abs(ours[0]), np.abs(ours[1]))
        with np.errstate(invalid="ignore"):
            near = np.abs(ours[2] - theirs[2]) <= 1e-12 * scale
        same = near | (np.isnan(ours[2]) & np.isnan(theirs[2])) | (ours[2] == theirs[2])
        equal[row + 3] = equal[row + 4] = same
    return bool(equal.all())
