"""Pages: where a manifest keeps what it says of many segments.

Purpose
    A manifest is replaced as a whole by each commit.  Once it would name more than
    :data:`INLINE_SEGMENTS` segments, these are in pages of up to :data:`PAGE_SEGMENTS`, files that
    never change, and the manifest names the pages: a commit that seals a segment writes the last
    page, some kilobytes, and a manifest of a line for each page.

Layout
    ``00000042-0.page`` is the first page that version 42 of the manifest has written::

        header | table: fields of the segments, row by row | roots

    The header (:data:`~.layout.PAGE_HEADER`) and the table are verified when a stream is opened,
    against each other and against what the manifest says of the page; the roots, when somebody
    aggregates over whole segments.  The *root* of a segment is the entry that stands for its whole
    tree (:mod:`.layout`), in the columns that it was written with; the table says how high the
    tree is, or 0 where the page has no root of it.

    What the manifest says of the pages, in order::

        {"file": ["00000042-0.page", ...], "segments": [200, ...],
         "digest": ["<xxh3-64 of header and table>", ...]}

Which pages a commit writes
    Those in which something changes.  Before and behind what has changed the pages stay::

        before     | a b c d | e f g h | i j |
        f goes     | a b c d | e g h   | i j |          one page
        k comes    | a b c d | e g h   | i j k |        one page
        x for a-h  | x i j k |                          one page: what is small is joined

Guarantee
    A page is durable before the manifest that names it.  Pages that a manifest no longer names are
    garbage like any file, kept for those who may read the version before.

Limits
    The roots are those that are known when a page is written: of segments that this process has
    written or looked at, or that were in the page before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64, xxh3_64_hexdigest, xxh3_64_intdigest

from ..errors import CorruptBlock, UnsupportedFormat
from .file_contract import Files
from .layout import PAGE_HEADER, PAGE_MAGIC, PAGE_VERSION, ROW_ATTRIBUTES, ROWS_PER_ATTRIBUTE
from .sealed_tree import Root
from .segment_list import FIELDS, PageRef, SegmentEntry, SegmentList, alike

__all__ = [
    "INLINE_SEGMENTS",
    "PAGE",
    "PAGES",
    "PAGE_SEGMENTS",
    "known_roots",
    "page_key",
    "pages_from_json",
    "read_pages",
    "read_roots",
    "write_pages",
]

PAGE = ".page"
"""How names of pages end."""

PAGES = "pages"
"""Where they lie among a stream's objects."""

INLINE_SEGMENTS = 256
"""So many segments the manifest names itself."""

PAGE_SEGMENTS = 256

Numbers = npt.NDArray[np.int64]
_ROWS = len(FIELDS) + 1  # and the height
_COLUMNS = FIELDS.index("columns")


def page_key(place: str, page: PageRef) -> str:
    """Key of the object that has a page; no two contents have the same one."""
    return f"{place}/{PAGES}/{page.file.removesuffix(PAGE)}-{page.digest}{PAGE}"


class _Cut(NamedTuple):
    """Pages of a list: those before and behind what has changed, and its place."""

    before: tuple[PageRef, ...]
    first: int
    end: int
    behind: tuple[PageRef, ...]


def write_pages(
    files: Files,
    directory: str,
    version: int,
    identity: int,
    segments: SegmentList,
    stored: SegmentList,
    root_of: Callable[[SegmentEntry], Root | None],
) -> SegmentList:
    """Write what is not in pages yet; the same segments, with the pages that have them.

    The pages are durable when this returns, their names when the directory has been synced.

    Parameters
    ----------
    version : int
        Of the manifest that will name them; no other has written pages with this number.
    identity : int
        Of the stream.
    stored : SegmentList
        Those of the manifest before, whose pages are there.
    root_of : callable
        Asked for segments whose root is in no page.

    Raises
    ------
    StorageFull, StorageFailed
        Nothing of it stays.
    """
    if len(segments) <= INLINE_SEGMENTS:
        return segments.paged(())
    if segments.pages:
        return segments
    cut = _cut(segments, stored)
    known = _roots_before(files, directory, stored, cut)
    rows = cut.end - cut.first
    count = -(-rows // PAGE_SEGMENTS)
    made: list[PageRef] = []
    try:
        for number in range(count):
            begin = cut.first + rows * number // count
            end = cut.first + rows * (number + 1) // count
            made.append(
                _write(
                    files, directory, f"{version:08d}-{number}{PAGE}", identity,
                    segments[begin:end], lambda entry: known.get(entry.id) or root_of(entry),
                )
            )  # fmt: skip
    except BaseException:
        for number in range(len(made) + 1):
            with suppress(Exception):
                files.remove(f"{directory}/{version:08d}-{number}{PAGE}")
        raise
    return segments.paged((*cut.before, *made, *cut.behind))


def _cut(segments: SegmentList, stored: SegmentList) -> _Cut:
    """Which pages of the list before stay, and what is to be written."""
    begin, end = alike(stored.ids, segments.ids)
    before: list[PageRef] = []
    first = 0
    pages = list(stored.pages)
    while pages and first + pages[0].segments <= begin:
        first += pages[0].segments
        before.append(pages.pop(0))
    behind: list[PageRef] = []
    last = 0
    while pages and last + pages[-1].segments <= end:
        last += pages[-1].segments
        behind.insert(0, pages.pop())
    stop = len(segments) - last
    small = stop - first
    left = before[-1].segments if before else 0
    right = behind[0].segments if behind else 0
    if left and right and left + small + right <= PAGE_SEGMENTS:
        first, stop = first - left, stop + right
        del before[-1], behind[0]
    elif small and left and left + small <= PAGE_SEGMENTS:
        first -= left
        del before[-1]
    elif small and right and small + right <= PAGE_SEGMENTS:
        stop += right
        del behind[0]
    return _Cut(tuple(before), first, stop, tuple(behind))


def _roots_before(
    files: Files, directory: str, stored: SegmentList, cut: _Cut
) -> Mapping[int, Root]:
    """Roots that pages have which do not stay."""
    staying = {page.file for page in (*cut.before, *cut.behind)}
    found: dict[int, Root] = {}
    at = 0
    for page in stored.pages:
        entries = stored[at : at + page.segments]
        at += page.segments
        if page.file not in staying:
            with suppress(FileNotFoundError, CorruptBlock):  # they are known again when looked at
                found |= _roots_in(files, directory, page, entries)
    return found


def known_roots(files: Files, directory: str, segments: SegmentList) -> dict[int, Root]:
    """Roots that the pages of a list have, by segment.

    Raises
    ------
    FileNotFoundError
    CorruptBlock
    """
    found: dict[int, Root] = {}
    at = 0
    for page in segments.pages:
        found |= _roots_in(files, directory, page, segments[at : at + page.segments])
        at += page.segments
    return found


def _roots_in(files: Files, directory: str, page: PageRef, entries: SegmentList) -> dict[int, Root]:
    heights, roots = read_roots(files, directory, page)
    return {
        entry: Root(height, words)
        for entry, height, words in zip(entries.ids.tolist(), heights.tolist(), roots, strict=True)
        if height
    }


def _write(
    files: Files,
    directory: str,
    name: str,
    identity: int,
    segments: SegmentList,
    root_of: Callable[[SegmentEntry], Root | None],
) -> PageRef:
    roots = [root_of(entry) for entry in segments]
    heights = np.array([0 if root is None else root.height for root in roots], np.int64)
    table = np.concatenate([segments.table, heights.reshape(1, -1)]).astype("<i8").tobytes()
    words = b"".join(
        np.ascontiguousarray(root.words, "<i8").tobytes() for root in roots if root is not None
    )
    head = PAGE_HEADER.pack(
        PAGE_MAGIC, PAGE_VERSION, _ROWS, len(segments), identity, len(words),
        xxh3_64_intdigest(words), 0,
    )[:-8]  # fmt: skip
    digest = xxh3_64(head + table)
    path = f"{directory}/{name}"
    with suppress(FileNotFoundError):  # of a commit that did not happen
        files.remove(path)
    with files.create(path) as file:
        file.writev([head, digest.intdigest().to_bytes(8, "little"), table, words])
        file.sync()
    return PageRef(name, len(segments), digest.hexdigest())


def pages_from_json(listed: Mapping[str, Sequence[Any]]) -> list[PageRef]:
    """Read what :func:`~.segment_list.pages_to_json` wrote.

    Raises
    ------
    KeyError, TypeError, ValueError
        It misses something.
    """
    columns = (listed[name] for name in PageRef._fields)
    pages = [PageRef(*each) for each in zip(*columns, strict=True)]
    if any("/" in page.file or not page.file.endswith(PAGE) for page in pages):
        raise ValueError("a page has not the name of one")
    return pages


def read_pages(
    files: Files, directory: str, listed: Mapping[str, Sequence[Any]], identity: int
) -> SegmentList:
    """The segments that are in the pages that a manifest lists.

    Raises
    ------
    FileNotFoundError
    CorruptBlock
        A page is damaged, or not the one that was written.
    UnsupportedFormat
    KeyError, TypeError, ValueError
        What the manifest says of its pages misses something.
    """
    pages = pages_from_json(listed)
    tables = [_table(files, f"{directory}/{page.file}", page, identity)[:-1] for page in pages]
    joined = np.concatenate(tables, axis=1) if tables else np.zeros((len(FIELDS), 0), np.int64)
    return SegmentList(joined, tuple(pages))


def _table(files: Files, path: str, page: PageRef, identity: int) -> Numbers:
    """The table of a page, with the heights."""
    size = PAGE_HEADER.size + 8 * _ROWS * page.segments
    with files.open(path) as file:
        if file.size < size:
            raise CorruptBlock(f"expected {size} bytes at least, found {file.size}", path, 0)
        data = bytes(file.read(0, size))
    magic, version, rows, segments, own, _, _, sign = PAGE_HEADER.unpack_from(data)
    if magic != PAGE_MAGIC:
        raise CorruptBlock("this is no page of a manifest", path, 0)
    body = xxh3_64(data[: PAGE_HEADER.size - 8] + data[PAGE_HEADER.size :])
    if body.intdigest() != sign:
        if version > PAGE_VERSION:
            raise UnsupportedFormat(
                f"{path} has format version {version}, this Chronicle reads up to {PAGE_VERSION}: "
                "use the release that wrote it, or a newer one"
            )
        raise CorruptBlock("its table does not hash to what it should", path, 0)
    if body.hexdigest() != page.digest or (rows, segments, own) != (_ROWS, page.segments, identity):
        raise CorruptBlock("it is not the page that the manifest names", path, 0)
    table = np.frombuffer(data, "<i8", offset=PAGE_HEADER.size).reshape(_ROWS, segments)
    return table.astype(np.int64, copy=False)


def read_roots(files: Files, directory: str, page: PageRef) -> tuple[Numbers, list[Numbers]]:
    """The heights of a page's segments, 0 where there is no root, and the words of each root.

    Raises
    ------
    FileNotFoundError
        Its version is no longer kept.
    CorruptBlock
    """
    path = f"{directory}/{page.file}"
    at = PAGE_HEADER.size + 8 * _ROWS * page.segments
    with files.open(path) as file:
        data = bytes(file.read(0, file.size))
    if len(data) < at:
        raise CorruptBlock(f"expected {at} bytes at least, found {len(data)}", path, 0)
    if xxh3_64_hexdigest(data[: PAGE_HEADER.size - 8] + data[PAGE_HEADER.size : at]) != page.digest:
        raise CorruptBlock("its table does not hash to what it should", path, 0)
    _, _, _, _, _, length, sign, _ = PAGE_HEADER.unpack_from(data)
    words = data[at : at + length]
    if len(words) != length or xxh3_64_intdigest(words) != sign:
        raise CorruptBlock("its roots do not hash to what they should", path, at)
    table = np.frombuffer(data, "<i8", _ROWS * page.segments, PAGE_HEADER.size)
    table = table.reshape(_ROWS, page.segments)
    heights = table[-1].astype(np.int64)
    sizes = np.where(heights > 0, ROW_ATTRIBUTES + ROWS_PER_ATTRIBUTE * (table[_COLUMNS] - 1), 0)
    if int(sizes.sum()) * 8 != length:
        raise CorruptBlock("it has not the roots that its table says", path, at)
    numbers = np.frombuffer(words, "<i8").astype(np.int64)
    return heights, np.split(numbers, np.cumsum(sizes)[:-1])
