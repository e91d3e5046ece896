"""Repair: salvages a damaged stream, and reports what is lost (``chronicle check --repair``).

Guarantee: only verified blocks are kept: a repaired stream never gives a wrong answer for an event
that it still has.  Every lost event is counted, with its time range.  Damaged files stay in
``quarantine/`` below the stream.  A crash leaves the stream as it was, or repaired.  Marks of
writers are dropped, since their events may be lost.

==========================  =================================================================
sealed segment, late run,   its blocks are walked from the front; after damage the next block
active segment              that verifies is searched.  Sound leaves go into a new segment
dictionary page             leaves that need its strings are lost with it
log                         the records before the damaged one are kept; without a readable
                            checkpoint, leaves are taken from the active segment, including
                            those of unacknowledged appends
manifest                    cannot be repaired: restore it from a backup
==========================  =================================================================

Limits: losses of a log are counted from the records behind the damage, each of which has the
stream's event count, or from the manifest, which lacks appends of a session that crashed.

``Loss`` names what was lost, for the report.
"""

from __future__ import annotations

import logging
import posixpath
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from ..errors import ChronicleError, CorruptBlock, CorruptStore, StorageFailed
from ..schema import StreamSchema
from .block import open_block
from .catalog import QUARANTINE, StreamManifest, log_name
from .check import CheckReport, check_view
from .dictionary import read_page
from .file_contract import Files
from .journal import Journal, append_of, decode_batch, events_after, install
from .layout import ALIGNMENT, BLOCK_FRAME, BLOCK_MAGIC, DICTIONARY_HEADER, FILE_HEADER, BlockKind
from .leaf import LeafReader
from .log import LogRecord, read_log, salvage_log
from .recovery import journal_from, stream_manifest
from .segment import SegmentView
from .segment_file import SegmentFile
from .segment_list import COUNTER_BITS, SegmentEntry, SegmentList, segment_name
from .segment_views import open_entry
from .segment_writer import SegmentWriter
from .tail import ticks_of
from .tap import disjoint


@dataclass(frozen=True)
class Loss:
    """Events lost of a damaged file (now ``quarantined``, None if missing), in inclusive tick
    ranges.
    """

    stream: str
    file: str
    quarantined: str | None
    saved: int
    lost: int
    ranges: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        where = ", ".join(f"{first} to {last}" for first, last in self.ranges)
        between = f" between the ticks {where}" if where else ""
        moved = f"; moved to {self.quarantined}" if self.quarantined else ""
        return (
            f"{self.stream}: {self.file}: {self.lost:,} events lost{between}, {self.saved:,} "
            f"saved{moved}"
        )


logger = logging.getLogger("chronicle.store")


class _Salvaged:
    def __init__(self, file: SegmentFile, length: int) -> None:
        self._file = file
        self._data = file.data(length)
        self._length = length
        self._values: dict[str, list[tuple[int, pa.Array]]] = {}
        self.events = 0
        self.damaged = False
        """Whether something was skipped since the last leaf."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        file, schema = self._file, self._file.schema
        for offset in self._blocks():
            frame = open_block(self._data, offset, file.segment_id, file.path)
            if frame.kind is BlockKind.DICTIONARY:
                self._page(offset)
            elif frame.kind is BlockKind.LEAF:
                try:
                    leaf = LeafReader(self._data, offset, file.segment_id, schema, file.path)
                    arrays = [self._column(leaf, name) for name in schema.names]
                except (ChronicleError, pa.ArrowInvalid, OSError, ValueError, IndexError):
                    self.damaged = True
                    continue
                self.events += leaf.events
                yield pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
                self.damaged = False

    def _blocks(self) -> Iterator[int]:
        data, file = self._data, self._file
        at = FILE_HEADER.size
        while at + BLOCK_FRAME.size <= self._length:
            if bytes(data[at : at + 4]) == BLOCK_MAGIC:
                try:
                    frame = open_block(data, at, file.segment_id, file.path)
                except CorruptBlock:
                    pass
                else:
                    if frame.head_bytes >= BLOCK_FRAME.size:
                        yield at
                        at += max(ALIGNMENT, frame.total_bytes)
                        continue
            self.damaged = True
            at += ALIGNMENT

    def _page(self, offset: int) -> None:
        file = self._file
        column = DICTIONARY_HEADER.unpack_from(self._data, offset + BLOCK_FRAME.size)[0]
        attribute = file.schema.attributes[column]
        with suppress(CorruptBlock):
            first, values = read_page(self._data, offset, file.segment_id, attribute, file.path)
            self._values.setdefault(attribute.name, []).append((first, values))

    def _column(self, leaf: LeafReader, name: str) -> pa.Array:
        if not leaf.uses_dictionary(name):
            return leaf.column(name, 0, leaf.events)
        pages = self._values.get(name, [])
        count = 0
        parts = []
        for first, values in pages:
            if first != count:  # a previous page is damaged
                break
            parts.append(values)
            count += len(values)
        attribute = self._file.schema.attribute(name)
        dictionary = pa.concat_arrays(parts) if parts else pa.array([], attribute.type)
        array = leaf.column(name, 0, leaf.events, dictionary)
        array.validate(full=True)
        return array


def repair_stream(files: Files, directory: str, name: str) -> list[Loss]:
    """Repair a stream that nobody has open; returns losses.  Errors leave it unchanged."""
    repair = _Repair(files, directory, name, stream_manifest(files, directory))
    try:
        return repair.run()
    except BaseException:
        repair.discard()
        raise


class _Repair:
    def __init__(self, files: Files, directory: str, name: str, manifest: StreamManifest) -> None:
        self._files = files
        self._directory = directory
        self._name = name
        self._manifest = manifest
        self._next_id = manifest.next_id
        self._losses: list[Loss] = []
        self._damaged: list[str] = []
        self._made: list[str] = []
        self._without_log = False
        self._events_before: int | None = None

    def _path(self, file: str) -> str:
        return f"{self._directory}/{file}"

    def run(self) -> list[Loss]:
        manifest = self._manifest
        journal = self._journal()
        if journal.extent is not None:
            self._next_id = max(self._next_id, journal.extent.segment_id + 1)
        segments = [s for entry in manifest.segments for s in self._entry(entry)]
        runs = [s for entry in manifest.runs for s in self._entry(entry)]
        if self._without_log:
            saved = 0
            for orphan in self._orphans():
                newest = max((entry.last for entry in segments), default=orphan.first)
                (segments if orphan.first >= newest else runs).append(orphan)
                last = orphan.last if journal.last is None else max(orphan.last, journal.last)
                journal = replace(journal, last=last)
                saved += orphan.events
            if self._events_before is not None:
                lost = max(0, self._events_before - saved - manifest.stored_events)
                self._losses[0] = replace(self._losses[0], lost=lost)
        if journal.extent is not None:
            active = self._active(journal)
            if active is not None:
                segments += active
                journal = replace(journal, extent=None)
        if self._losses or self._damaged:
            self._commit(
                replace(manifest, segments=SegmentList.of(segments), runs=tuple(runs), garbage=()),
                journal,
            )
        return self._losses

    def discard(self) -> None:
        for file in self._made:
            with suppress(Exception):
                self._files.remove(self._path(file))

    # -- the log --------------------------------------------------------------------------------

    def _journal(self) -> Journal:
        manifest = self._manifest
        file = log_name(manifest.log)
        path = self._path(file)
        try:
            journal = journal_from(read_log(self._files, path), manifest, path)
            if journal.refused:
                logged = journal.logged
                lost = sum(events for events, _ in journal.refused)
                self._damaged.append(file)
                self._lose(file, self._quarantine_name(file), logged, lost, ())
            return replace(journal, refused=())
        except FileNotFoundError:
            return self._without_checkpoint(manifest.events, Loss(self._name, path, None, 0, 0, ()))
        except CorruptStore as error:
            logger.warning("%s: %s", path, error)
        self._damaged.append(file)
        contents, behind = salvage_log(self._files, path)
        counted, events, ranges = _claimed_by(behind, manifest.schema)
        if manifest.log_bytes is not None and manifest.events is not None:  # at a clean close
            counted = max(manifest.events, counted or 0)
        moved = self._quarantine_name(file)
        try:
            # the sequence number may be damaged with the header
            contents = contents._replace(sequence=manifest.log)
            journal = journal_from(contents, replace(manifest, log_bytes=None), path)
        except CorruptStore:  # no checkpoint, or another stream's log
            before = manifest.events if counted is None else counted
            loss = Loss(self._name, path, moved, 0, events, ranges)
            return self._without_checkpoint(before, loss)
        logged = journal.logged
        lost = events
        if counted is not None and journal.events is not None:
            lost = max(0, counted - journal.events)
        self._lose(file, moved, logged, lost, ranges)
        return journal

    def _without_checkpoint(self, events: int | None, loss: Loss) -> Journal:
        """The journal of a log without a readable checkpoint; ``events`` were counted before."""
        self._without_log, self._events_before = True, events
        self._losses.append(loss)
        manifest = self._manifest
        return replace(
            Journal.empty(manifest.schema),
            last=self._newest(),
            position=manifest.position or 0,
            identity=manifest.identity,
        )

    def _newest(self) -> int | None:
        entries = (*self._manifest.segments, *self._manifest.runs)
        return max((entry.last for entry in entries), default=None)

    # -- segments -------------------------------------------------------------------------------

    def _entry(self, entry: SegmentEntry) -> list[SegmentEntry]:
        """The replacement of a sealed segment or late run: itself, a new one, or nothing."""
        schema = self._manifest.written_as(entry)
        path = self._path(entry.file)
        try:
            view = open_entry(self._files, self._directory, self._manifest, entry, as_written=True)
            if _sound(view, self._name, path):
                return [entry]
        except FileNotFoundError:
            self._lose(entry.file, None, 0, entry.events, ((entry.first, entry.last),))
            return []
        except (ChronicleError, ValueError, KeyError):
            pass
        return self._salvage(
            entry.file, entry.id, schema, None, entry.events, entry.first, entry.last, entry.layout
        )

    def _active(self, journal: Journal) -> list[SegmentEntry] | None:
        extent = journal.extent
        assert extent is not None
        file = segment_name(extent.segment_id)
        schema = self._manifest.schema
        first = self._manifest.segments[-1].last if self._manifest.segments else None
        last = journal.last
        try:
            segment = SegmentFile(self._files, self._path(file), extent.segment_id, schema)
            view = SegmentView.open_extent(segment, extent)
            for name, pages in extent.pages.items():
                segment.dictionary(name, pages)
            if _sound(view, self._name, self._path(file)):
                return None
            first, last = view.first, view.last
        except FileNotFoundError:
            ranges = () if first is None or last is None else ((first, last),)
            self._lose(file, None, 0, extent.events, ranges)
            return []
        except (ChronicleError, ValueError, KeyError):
            pass
        return self._salvage(
            file, extent.segment_id, schema, extent.length, extent.events, first, last
        )

    def _orphans(self) -> Iterator[SegmentEntry]:
        manifest = self._manifest
        named = {entry.file for entry in (*manifest.segments, *manifest.runs)}
        named |= {file for file, _ in manifest.garbage} | set(self._made)
        present = [file for file in self._files.list(self._directory) if file.endswith(".seg")]
        orphans = {self._id_of(file): file for file in present if file not in named}
        self._next_id = max(self._next_id, *(i + 1 for i in orphans), 0)
        for segment_id, file in sorted(orphans.items()):
            yield from self._salvage(file, segment_id, manifest.schema, None, 0, None, None)

    def _id_of(self, file: str) -> int:
        number = int(file.removesuffix(".seg"))
        return number | self._manifest.identity << COUNTER_BITS

    def _salvage(
        self,
        file: str,
        segment_id: int,
        schema: StreamSchema,
        length: int | None,
        events: int,
        first: int | None,
        last: int | None,
        layout: int | None = None,
    ) -> list[SegmentEntry]:
        segment = SegmentFile(self._files, self._path(file), segment_id, schema, verify=False)
        size = self._files.size(self._path(file))
        salvaged = _Salvaged(segment, size if length is None else min(size, length))
        options = self._manifest.options
        new = self._next_id
        self._next_id += 1
        target = segment_name(new)
        with suppress(FileNotFoundError):
            self._files.remove(self._path(target))
        writer = SegmentWriter(
            self._files, self._path(target), new, schema, options.codec, options.leaf_bytes
        )
        self._made.append(target)
        gaps: list[tuple[int, int]] = []
        before = first
        try:
            for batch in salvaged.batches():
                begin, end = _span(batch, schema)
                if salvaged.damaged:
                    gaps.append((begin if before is None else before, begin))
                writer.write(batch)
                before = end
            if last is not None and (salvaged.damaged or before is None):
                gaps.append((last if before is None else before, max(before or last, last)))
            entries = []
            if writer.events:
                entries.append(
                    writer.seal(len(self._manifest.layouts) if layout is None else layout)
                )
        finally:
            writer.close()
        if not entries:
            self._files.remove(self._path(target))
        self._damaged.append(file)
        lost = max(0, events - salvaged.events)
        ranges = tuple(disjoint(gaps)) if lost else ()
        self._lose(file, self._quarantine_name(file), salvaged.events, lost, ranges)
        return entries

    # -- the end --------------------------------------------------------------------------------

    def _quarantine_name(self, file: str) -> str:
        return self._path(f"{QUARANTINE}/{file}")

    def _lose(
        self,
        file: str,
        quarantined: str | None,
        saved: int,
        lost: int,
        ranges: tuple[tuple[int, int], ...],
    ) -> None:
        path = self._path(file)
        self._losses.append(Loss(self._name, path, quarantined, saved, lost, ranges))

    def _commit(self, manifest: StreamManifest, journal: Journal) -> None:
        position = journal.position + 1
        manifest = replace(
            manifest,
            version=manifest.version + 1,
            log=manifest.log + 1,
            next_id=self._next_id,
            events=manifest.stored_events + journal.rows,
            position=position,
            log_bytes=None,
        )
        journal = replace(
            journal, position=position, events=manifest.events, identity=manifest.identity
        )
        path = self._path(log_name(manifest.log))
        with suppress(FileNotFoundError):
            self._files.remove(path)
        self._made.append(log_name(manifest.log))
        quarantine = self._path(QUARANTINE)
        self._files.make_directory(quarantine)
        for file in self._damaged:  # the original names go with the old version
            with suppress(FileExistsError):
                self._files.link(self._path(file), f"{quarantine}/{file}")
        self._files.sync_directory(quarantine)
        install(self._files, self._directory, manifest, journal)
        self._made = []
        for file in {*self._damaged, log_name(self._manifest.log)}:
            try:
                self._files.remove(self._path(file))
            except (FileNotFoundError, StorageFailed) as error:
                logger.info("%s: %s", posixpath.join(self._directory, file), error)


def _span(batch: pa.RecordBatch, schema: StreamSchema) -> tuple[int, int]:
    ticks = ticks_of(batch, schema)
    return int(ticks[0]), int(ticks[-1])


def _sound(view: SegmentView, name: str, path: str) -> bool:
    report = CheckReport()
    check_view(view, name, path, report)
    return report.ok


def _claimed_by(
    records: list[LogRecord], schema: StreamSchema
) -> tuple[int | None, int, tuple[tuple[int, int], ...]]:
    counted: int | None = None
    events = 0
    spans: list[tuple[int, int]] = []
    for record in records:
        with suppress(pa.ArrowException, ValueError, OSError, struct.error):
            after = events_after(record.kind, record.payload)
            counted = counted if after is None else after
            encoded = append_of(record.kind, record.payload)
            batch = None if encoded is None else decode_batch(encoded, schema)
            if batch is not None:
                spans.append(_span(batch, schema))
                events += batch.num_rows
    if not spans:
        return counted, events, ()
    return counted, events, ((min(first for first, _ in spans), max(last for _, last in spans)),)
