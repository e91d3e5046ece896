"""The segments that a manifest names, as columns of numbers.

Purpose
    A stream may have a hundred thousand segments.  :class:`SegmentList` keeps what its manifest
    says of them in one table, a row for each field, from which :class:`SegmentEntry` values are
    made when somebody asks for one: to open a stream, to commit, and to choose the segments that a
    time range meets takes a few operations on arrays, not an object for each.

Layout
    ::

        table   | id     | 17 | 18 | 19 | ...          int64, one column for each segment
                | events | .. |
                | first, last, bytes, columns, layout

Guarantee
    A list never changes; what adds or removes makes another one, and costs a copy of the table
    (60 bytes for each segment).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

__all__ = [
    "COUNTER_BITS",
    "COUNTER_MASK",
    "FIELDS",
    "IDENTITY_BITS",
    "PageRef",
    "SegmentEntry",
    "SegmentList",
    "alike",
    "pages_to_json",
    "segment_name",
]

COUNTER_BITS = 32
COUNTER_MASK = (1 << COUNTER_BITS) - 1
IDENTITY_BITS = 28

FIELDS = ("id", "events", "first", "last", "bytes", "columns", "layout")
"""Of an entry, in the order of the rows of a table."""

_ID, _EVENTS, _FIRST, _LAST, _BYTES, _, _LAYOUT = range(len(FIELDS))

ROOM = 64
"""Least number of segments that a table has room for, when it was made anew for more."""

Numbers = npt.NDArray[np.int64]


def segment_name(segment_id: int) -> str:
    """File name of a segment: of what a stream numbers itself, the number."""
    drawn = segment_id >> (COUNTER_BITS + IDENTITY_BITS)  # by a bulk load
    return f"{segment_id if drawn else segment_id & COUNTER_MASK:08d}.seg"


@dataclass(frozen=True)
class SegmentEntry:
    """A sealed segment or late run.

    Attributes
    ----------
    first, last : int
        Ticks, inclusive.
    bytes : int
        Length of the file.
    columns : int
        Columns of the stream's schema when it was written; of later ones it has the defaults.
    layout : int
        How often a column had been renamed, dropped, or given another type until then.
    """

    id: int
    events: int
    first: int
    last: int
    bytes: int
    columns: int
    layout: int = 0

    @property
    def file(self) -> str:
        """Name of the segment file."""
        return segment_name(self.id)

    def to_json(self) -> dict[str, int]:
        """A form for manifests."""
        return {k: v for k, v in vars(self).items() if k != "layout" or v}


class PageRef(NamedTuple):
    """A page of a manifest (:mod:`.manifest_pages`), as the manifest names it."""

    file: str
    segments: int
    digest: str


def pages_to_json(pages: Sequence[PageRef]) -> dict[str, list[Any]]:
    """A form for manifests: one list for each attribute."""
    return {name: [getattr(page, name) for page in pages] for name in PageRef._fields}


@dataclass
class _Room:
    """A table with room behind what is filled: lists of one line of commits share it."""

    table: Numbers
    filled: int


class SegmentList(Sequence[SegmentEntry]):
    """Entries in order; see the module.

    Parameters
    ----------
    table : int64[fields, segments]
        As :data:`FIELDS` says; not to be changed any more.
    pages : tuple of PageRef
        That have all of it, in order; none where it is in no pages.
    """

    __slots__ = ("_room", "pages", "table")

    def __init__(self, table: Numbers, pages: tuple[PageRef, ...] = ()) -> None:
        if table.flags.writeable:
            table = table.view()
            table.flags.writeable = False
        self.table = table
        self.pages = pages
        self._room: _Room | None = None

    @classmethod
    def of(cls, entries: Iterable[SegmentEntry]) -> SegmentList:
        """A list of entries."""
        if isinstance(entries, SegmentList):
            return entries
        return cls(_table([tuple(vars(entry).values()) for entry in entries]))

    @classmethod
    def from_json(cls, listed: Sequence[Mapping[str, Any]]) -> SegmentList:
        """Read what :meth:`to_json` wrote.

        Raises
        ------
        KeyError, TypeError, ValueError
            Something is missing, too much, or no number.
        """
        known = set(FIELDS)
        for each in listed:
            if not each.keys() <= known:
                raise ValueError(f"of a segment it says {sorted(each.keys() - known)}, too")
        columns = [[each[name] for each in listed] for name in FIELDS[:-1]]
        columns.append([each.get(FIELDS[-1], 0) for each in listed])
        if not all(type(value) is int for column in columns for value in column):
            raise TypeError("what it says of segments are no whole numbers")
        try:
            return cls(np.array(columns, np.int64).reshape(len(FIELDS), len(listed)))
        except OverflowError as error:
            raise ValueError(f"what it says of segments has no 64 bits: {error}") from None

    def to_json(self) -> list[dict[str, int]]:
        """A form for manifests."""
        rows = self.table.T.tolist()
        return [dict(zip(FIELDS if row[-1] else FIELDS[:-1], row, strict=False)) for row in rows]

    def __len__(self) -> int:
        return int(self.table.shape[1])

    @overload
    def __getitem__(self, at: int) -> SegmentEntry: ...

    @overload
    def __getitem__(self, at: slice) -> SegmentList: ...

    def __getitem__(self, at: int | slice) -> SegmentEntry | SegmentList:
        if isinstance(at, slice):
            return SegmentList(self.table[:, at])
        return SegmentEntry(*self.table[:, at].tolist())

    def __iter__(self) -> Iterator[SegmentEntry]:
        for row in self.table.T.tolist():
            yield SegmentEntry(*row)

    def __contains__(self, entry: object) -> bool:
        if not isinstance(entry, SegmentEntry):
            return False
        at = self.find(entry.id)
        return at is not None and self[at] == entry

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SegmentList):
            return bool(np.array_equal(self.table, other.table))
        return isinstance(other, tuple) and tuple(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SegmentList({list(self)!r})" if len(self) < 8 else f"<{len(self):,} segments>"

    @property
    def ids(self) -> Numbers:
        """Identifier of each."""
        row: Numbers = self.table[_ID]
        return row

    @property
    def events(self) -> Numbers:
        """Events of each."""
        row: Numbers = self.table[_EVENTS]
        return row

    @property
    def firsts(self) -> Numbers:
        """First tick of each."""
        row: Numbers = self.table[_FIRST]
        return row

    @property
    def lasts(self) -> Numbers:
        """Last tick of each."""
        row: Numbers = self.table[_LAST]
        return row

    @property
    def bytes(self) -> Numbers:
        """Length of the file of each."""
        row: Numbers = self.table[_BYTES]
        return row

    @property
    def layouts(self) -> Numbers:
        """Layout of each."""
        row: Numbers = self.table[_LAYOUT]
        return row

    @property
    def shapes(self) -> Numbers:
        """Columns and layout of each: how it is read."""
        row: Numbers = self.table[-2:]
        return row

    def paged(self, pages: tuple[PageRef, ...]) -> SegmentList:
        """The same, in these pages."""
        found = SegmentList(self.table, pages)
        found._room = self._room
        return found

    def find(self, segment_id: int) -> int | None:
        """Place of a segment; None where there is none of that identifier."""
        found = np.flatnonzero(self.ids == segment_id)
        return int(found[0]) if found.size else None

    def within(self, first: int, last: int) -> Numbers:
        """Places of those that may hold events with first <= t <= last."""
        return np.flatnonzero((self.lasts >= first) & (self.firsts <= last))

    def where(self, kept: npt.NDArray[np.bool_]) -> SegmentList:
        """Those of which an array says so."""
        return SegmentList(np.ascontiguousarray(self.table[:, kept]))

    def ordered(self, places: npt.NDArray[np.intp]) -> SegmentList:
        """Those of some places, in that order."""
        return SegmentList(np.ascontiguousarray(self.table[:, places]))

    def replaced(self, others: Mapping[int, Sequence[SegmentEntry]]) -> SegmentList:
        """With others in the places of some, by the identifiers of these."""
        parts, begun = [], 0
        for at in np.flatnonzero(np.isin(self.ids, list(others))).tolist():
            parts += [self.table[:, begun:at], SegmentList.of(others[int(self.ids[at])]).table]
            begun = at + 1
        return SegmentList(np.concatenate([*parts, self.table[:, begun:]], axis=1))

    def files(self) -> list[str]:
        """File name of each."""
        drawn = self.ids >> (COUNTER_BITS + IDENTITY_BITS) != 0  # as :func:`segment_name` has it
        numbers = np.where(drawn, self.ids, self.ids & COUNTER_MASK).tolist()
        return [f"{number:08d}.seg" for number in numbers]

    def after(self, entries: Iterable[SegmentEntry]) -> SegmentList:
        """With others behind."""
        more = SegmentList.of(entries).table
        return SegmentList(np.concatenate([self.table, more], axis=1)) if more.size else self

    def grown(self, entries: Iterable[SegmentEntry]) -> SegmentList:
        """As :meth:`after`, without a copy mostly: the stream's lock is held.

        The table of what comes out has room behind, where the next ones are put.
        """
        more = SegmentList.of(entries).table
        count, room = len(self), self._room
        end = count + more.shape[1]
        if room is None or room.filled != count or end > room.table.shape[1]:
            room = _Room(np.empty((len(FIELDS), end + max(ROOM, end // 8)), np.int64), count)
            room.table[:, :count] = self.table
        room.table[:, count:end] = more
        room.filled = end
        found = SegmentList(room.table[:, :end])
        found._room = room
        return found

    def missing(self, other: SegmentList) -> SegmentList:
        """Those of this list that another has not, by identifier."""
        begin, end = alike(self.ids, other.ids)
        middle = self[begin : len(self) - end]
        return middle.where(~np.isin(middle.ids, other.ids[begin : len(other) - end]))


def alike(one: Numbers, other: Numbers) -> tuple[int, int]:
    """How many numbers two arrays have in common at the beginning, and then at the end."""
    most = min(len(one), len(other))
    unlike = np.flatnonzero(one[:most] != other[:most])
    begin = int(unlike[0]) if unlike.size else most
    most -= begin
    unlike = np.flatnonzero(one[len(one) - most :] != other[len(other) - most :])
    return begin, most - 1 - int(unlike[-1]) if unlike.size else most


def _table(rows: Sequence[tuple[int, ...]]) -> Numbers:
    table: Numbers = np.array(rows, np.int64).reshape(len(rows), len(FIELDS)).T
    return np.ascontiguousarray(table)
