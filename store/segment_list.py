"""The segment entries of a manifest, in columnar form: array operations, not an object per
segment::

    table   | id     | 17 | 18 | 19 | ...          int64, one column for each segment
            | events | .. |
            | first, last, bytes, columns, layout

A list is immutable; a change copies the table (60 bytes per segment).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

COUNTER_BITS = 32
COUNTER_MASK = (1 << COUNTER_BITS) - 1
IDENTITY_BITS = 28

FIELDS = ("id", "events", "first", "last", "bytes", "columns", "layout")
"""Fields of an entry, in the order of table rows."""

Numbers = npt.NDArray[np.int64]


def segment_name(segment_id: int) -> str:
    """File name of a segment: its counter, or the drawn identifier of a bulk load."""
    drawn = segment_id >> (COUNTER_BITS + IDENTITY_BITS)  # of a bulk load
    return f"{segment_id if drawn else segment_id & COUNTER_MASK:08d}.seg"


@dataclass(frozen=True)
class SegmentEntry:
    """A sealed segment or late run; ``columns`` and ``layout`` are the schema's at writing."""

    id: int
    events: int
    first: int
    last: int
    bytes: int
    columns: int
    layout: int = 0

    @property
    def file(self) -> str:
        return segment_name(self.id)

    def to_json(self) -> dict[str, int]:
        return {k: v for k, v in vars(self).items() if k != "layout" or v}


class PageRef(NamedTuple):
    """A manifest's reference to one of its pages (``manifest_pages``)."""

    file: str
    segments: int
    digest: str


def pages_to_json(pages: Sequence[PageRef]) -> dict[str, list[Any]]:
    return {name: [getattr(page, name) for page in pages] for name in PageRef._fields}


def _row(field: str) -> Any:
    number = FIELDS.index(field)
    return property(lambda segments: segments.table[number])


class SegmentList(Sequence[SegmentEntry]):
    """Immutable entries in order; ``pages`` contain all of them, or are empty."""

    __slots__ = ("pages", "table")

    ids: Numbers = _row("id")
    events: Numbers = _row("events")
    firsts: Numbers = _row("first")
    lasts: Numbers = _row("last")
    bytes: Numbers = _row("bytes")
    layouts: Numbers = _row("layout")

    def __init__(self, table: Numbers, pages: tuple[PageRef, ...] = ()) -> None:
        if table.flags.writeable:
            table = table.view()
            table.flags.writeable = False
        self.table = table
        self.pages = pages

    @classmethod
    def of(cls, entries: Iterable[SegmentEntry]) -> SegmentList:
        if isinstance(entries, SegmentList):
            return entries
        return cls(_table([tuple(vars(entry).values()) for entry in entries]))

    @classmethod
    def from_json(cls, listed: Sequence[Mapping[str, Any]]) -> SegmentList:
        """Inverse of ``to_json``; KeyError, TypeError or ValueError if invalid."""
        names = set(FIELDS)
        for each in listed:
            if not each.keys() <= names:
                raise ValueError(f"of a segment it says {sorted(each.keys() - names)}, too")
        columns = [[each[name] for each in listed] for name in FIELDS[:-1]]
        columns.append([each.get(FIELDS[-1], 0) for each in listed])
        if not all(type(value) is int for column in columns for value in column):
            raise TypeError("what it says of segments are no whole numbers")
        try:
            return cls(np.array(columns, np.int64).reshape(len(FIELDS), len(listed)))
        except OverflowError as error:
            raise ValueError(f"what it says of segments has no 64 bits: {error}") from None

    def to_json(self) -> list[dict[str, int]]:
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
    def shapes(self) -> Numbers:
        """Columns and layout of each, which determine how it is read."""
        row: Numbers = self.table[-2:]
        return row

    def paged(self, pages: tuple[PageRef, ...]) -> SegmentList:
        return SegmentList(self.table, pages)

    def by_page(self) -> Iterator[tuple[PageRef, int, SegmentList]]:
        """Each page with the number of segments before it, and its segments."""
        at = 0
        for page in self.pages:
            yield page, at, self[at : at + page.segments]
            at += page.segments

    def find(self, segment_id: int) -> int | None:
        places = np.flatnonzero(self.ids == segment_id)
        return int(places[0]) if places.size else None

    def within(self, first: int, last: int) -> Numbers:
        return np.flatnonzero((self.lasts >= first) & (self.firsts <= last))

    def where(self, mask: npt.NDArray[np.bool_]) -> SegmentList:
        return SegmentList(np.ascontiguousarray(self.table[:, mask]))

    def ordered(self, places: npt.NDArray[np.intp]) -> SegmentList:
        return SegmentList(np.ascontiguousarray(self.table[:, places]))

    def replaced(self, others: Mapping[int, Sequence[SegmentEntry]]) -> SegmentList:
        """Entries replaced by others, by identifier."""
        parts, begun = [], 0
        for at in np.flatnonzero(np.isin(self.ids, list(others))).tolist():
            parts += [self.table[:, begun:at], SegmentList.of(others[int(self.ids[at])]).table]
            begun = at + 1
        return SegmentList(np.concatenate([*parts, self.table[:, begun:]], axis=1))

    def files(self) -> list[str]:
        drawn = self.ids >> (COUNTER_BITS + IDENTITY_BITS) != 0  # as in ``segment_name``
        numbers = np.where(drawn, self.ids, self.ids & COUNTER_MASK).tolist()
        return [f"{number:08d}.seg" for number in numbers]

    def after(self, entries: Iterable[SegmentEntry]) -> SegmentList:
        more = SegmentList.of(entries).table
        return SegmentList(np.concatenate([self.table, more], axis=1)) if more.size else self

    def missing(self, other: SegmentList) -> SegmentList:
        """Entries that another list lacks, by identifier."""
        begin, end = alike(self.ids, other.ids)
        middle = self[begin : len(self) - end]
        return middle.where(~np.isin(middle.ids, other.ids[begin : len(other) - end]))


def alike(one: Numbers, other: Numbers) -> tuple[int, int]:
    """Lengths of the common prefix and of the common suffix of the rest."""
    most = min(len(one), len(other))
    unlike = np.flatnonzero(one[:most] != other[:most])
    begin = int(unlike[0]) if unlike.size else most
    most -= begin
    unlike = np.flatnonzero(one[len(one) - most :] != other[len(other) - most :])
    return begin, most - 1 - int(unlike[-1]) if unlike.size else most


def _table(rows: Sequence[tuple[int, ...]]) -> Numbers:
    table: Numbers = np.array(rows, np.int64).reshape(len(rows), len(FIELDS)).T
    return np.ascontiguousarray(table)
