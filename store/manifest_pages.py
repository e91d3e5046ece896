"""Manifest pages: segment entries outside of the manifest.

Above ``INLINE_SEGMENTS`` segments, their entries are in immutable pages of up to ``PAGE_SEGMENTS``,
and the manifest names the pages: a commit that seals a segment writes one page and one manifest
line per page, not all entries.  ``00000042-0.page`` is the first page of manifest version 42::

    header | table: fields of the segments, row by row | roots

    in the manifest: {"file": ["00000042-0.page", ...], "segments": [200, ...],
                      "digest": ["<xxh3-64 of header and table>", ...]}

Header (``layout.PAGE_HEADER``) and table are verified when a stream is opened, roots when a query
aggregates over whole segments.  The *root* of a segment is the entry of its whole tree, in the
columns of the file; the table has the tree's height, or 0 if the root was unknown.

A commit writes only the pages that change, and joins small ones::

    before     | a b c d | e f g h | i j |
    f goes     | a b c d | e g h   | i j |          one page
    k comes    | a b c d | e g h   | i j k |        one page
    x for a-h  | x i j k |                          one page: small ones are joined

Guarantee: a page is durable before the manifest that names it; unnamed pages are garbage, kept for
readers of the earlier version.

The commit of a manifest makes everything durable before it is named::

    new pages, synced | new log, a checkpoint, synced | sync of the directory | manifest

On a failure new files are removed, unless the manifest may have been replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64, xxh3_64_intdigest

from ..errors import CorruptBlock
from .catalog import StreamManifest, log_name, read_manifest, write_manifest
from .file_contract import Files, check_version
from .journal import Journal, begin_log
from .layout import PAGE_HEADER, PAGE_MAGIC, PAGE_VERSION, ROW_ATTRIBUTES, ROWS_PER_ATTRIBUTE
from .log import LogWriter
from .segment import Root
from .segment_list import FIELDS, PageRef, SegmentEntry, SegmentList, alike

PAGE = ".page"

PAGES = "pages"
"""Prefix of pages among a stream's objects."""

INLINE_SEGMENTS = 256
"""Maximum segments in the manifest itself."""

PAGE_SEGMENTS = 256

Numbers = npt.NDArray[np.int64]
_ROWS = len(FIELDS) + 1  # plus the height
_COLUMNS = FIELDS.index("columns")


def page_key(place: str, page: PageRef) -> str:
    return f"{place}/{PAGES}/{page.file.removesuffix(PAGE)}-{page.digest}{PAGE}"


class _Cut(NamedTuple):
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
    """Write new pages, durable except for their names; returns the segments with their pages.
    ``root_of`` is called for segments whose root is in no page of ``stored``.  Errors leave no
    files.
    """
    if len(segments) <= INLINE_SEGMENTS:
        return segments.paged(())
    if segments.pages:
        return segments
    cut = _cut(segments, stored)
    roots = _roots_before(files, directory, stored, cut)
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
                    segments[begin:end], lambda entry: roots.get(entry.id) or root_of(entry),
                )
            )  # fmt: skip
    except BaseException:
        for number in range(len(made) + 1):
            with suppress(Exception):
                files.remove(f"{directory}/{version:08d}-{number}{PAGE}")
        raise
    return segments.paged((*cut.before, *made, *cut.behind))


def _cut(segments: SegmentList, stored: SegmentList) -> _Cut:
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
    staying = {page.file for page in (*cut.before, *cut.behind)}
    roots: dict[int, Root] = {}
    for page, _, entries in stored.by_page():
        if page.file not in staying:
            with suppress(FileNotFoundError, CorruptBlock):  # roots are found again on access
                roots |= _roots_in(files, directory, page, entries)
    return roots


def roots_in_pages(files: Files, directory: str, segments: SegmentList) -> dict[int, Root]:
    """Roots in a list's pages, by segment; raises when a page is missing or damaged."""
    roots: dict[int, Root] = {}
    for page, _, entries in segments.by_page():
        roots |= _roots_in(files, directory, page, entries)
    return roots


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
    with suppress(FileNotFoundError):  # of a failed commit
        files.remove(path)
    with files.create(path) as file:
        file.writev([head, digest.intdigest().to_bytes(8, "little"), table, words])
        file.sync()
    return PageRef(name, len(segments), digest.hexdigest())


def pages_from_json(listed: Mapping[str, Sequence[Any]]) -> list[PageRef]:
    """Inverse of ``segment_list.pages_to_json``; KeyError, TypeError or ValueError if invalid."""
    columns = (listed[name] for name in PageRef._fields)
    pages = [PageRef(*each) for each in zip(*columns, strict=True)]
    if any("/" in page.file or not page.file.endswith(PAGE) for page in pages):
        raise ValueError("a page has not the name of one")
    return pages


def read_pages(
    files: Files, directory: str, listed: Mapping[str, Sequence[Any]], identity: int
) -> SegmentList:
    """The segments in listed pages; ``CorruptBlock`` when a page is damaged or another one."""
    pages = pages_from_json(listed)
    tables = [_read(files, f"{directory}/{page.file}", page, identity)[1][:-1] for page in pages]
    joined = np.concatenate(tables, axis=1) if tables else np.zeros((len(FIELDS), 0), np.int64)
    return SegmentList(joined, tuple(pages))


def _read(
    files: Files, path: str, page: PageRef, identity: int | None, *, whole: bool = False
) -> tuple[bytes, Numbers]:
    """The bytes of a page, all or without the roots, and its table; None: of any stream."""
    size = PAGE_HEADER.size + 8 * _ROWS * page.segments
    with files.open(path) as file:
        if file.size < size:
            raise CorruptBlock(f"expected {size} bytes at least, found {file.size}", path, 0)
        data = bytes(file.read(0, file.size if whole else size))
    magic, version, rows, segments, own, _, _, sign = PAGE_HEADER.unpack_from(data)
    if magic != PAGE_MAGIC:
        raise CorruptBlock("this is no page of a manifest", path, 0)
    body = xxh3_64(data[: PAGE_HEADER.size - 8] + data[PAGE_HEADER.size : size])
    if body.intdigest() != sign:
        check_version(path, version, PAGE_VERSION)
        raise CorruptBlock("its table does not hash to what it should", path, 0)
    wanted = _ROWS, page.segments, own if identity is None else identity
    if body.hexdigest() != page.digest or (rows, segments, own) != wanted:
        raise CorruptBlock("it is not the page that the manifest names", path, 0)
    table = np.frombuffer(data, "<i8", rows * segments, PAGE_HEADER.size)
    return data, table.reshape(rows, segments).astype(np.int64, copy=False)


def read_roots(files: Files, directory: str, page: PageRef) -> tuple[Numbers, list[Numbers]]:
    """Heights of a page's segments, 0 without a root, and the words of each root."""
    path = f"{directory}/{page.file}"
    data, table = _read(files, path, page, None, whole=True)
    _, _, _, _, _, length, sign, _ = PAGE_HEADER.unpack_from(data)
    at = PAGE_HEADER.size + table.nbytes
    words = data[at : at + length]
    if len(words) != length or xxh3_64_intdigest(words) != sign:
        raise CorruptBlock("its roots do not hash to what they should", path, at)
    heights = table[-1]
    sizes = np.where(heights > 0, ROW_ATTRIBUTES + ROWS_PER_ATTRIBUTE * (table[_COLUMNS] - 1), 0)
    if int(sizes.sum()) * 8 != length:
        raise CorruptBlock("it has not the roots that its table says", path, at)
    numbers = np.frombuffer(words, "<i8").astype(np.int64)
    return heights, np.split(numbers, np.cumsum(sizes)[:-1])


def commit_manifest(
    files: Files,
    directory: str,
    old: StreamManifest,
    manifest: StreamManifest,
    journal: Journal,
    root_of: Callable[[SegmentEntry], Root | None],
    unsure: Callable[[BaseException], None],
) -> tuple[StreamManifest, LogWriter]:
    """Replace manifest and log; calls ``unsure`` if that may have happened on an error."""
    path = f"{directory}/{log_name(manifest.log)}"
    log: LogWriter | None = None
    try:
        manifest = _with_pages(files, directory, old, manifest, root_of)
        with suppress(FileNotFoundError):
            files.remove(path)
        log = begin_log(files, directory, manifest.log, journal, durable=False)
        # the names of the log, the pages, and every segment made for this commit
        files.sync_directory(directory)
    except BaseException:
        _take_back(files, directory, old, manifest, log, path)
        raise
    try:
        write_manifest(files, directory, manifest.to_json())
    except BaseException as error:
        if _says(files, directory, manifest.version):
            # the rename happened, but its durability is unknown
            log.close()
            unsure(error)
        else:
            _take_back(files, directory, old, manifest, log, path)
        raise
    return manifest, log


def _with_pages(
    files: Files,
    directory: str,
    old: StreamManifest,
    manifest: StreamManifest,
    root_of: Callable[[SegmentEntry], Root | None],
) -> StreamManifest:
    segments = write_pages(
        files, directory, manifest.version, manifest.identity,
        manifest.segments, old.segments, root_of,
    )  # fmt: skip
    staying = {page.file for page in segments.pages}
    gone = [page.file for page in old.segments.pages if page.file not in staying]
    garbage = (*manifest.garbage, *((file, manifest.version) for file in gone))
    return replace(manifest, segments=segments, garbage=garbage)


def _take_back(
    files: Files,
    directory: str,
    old: StreamManifest,
    manifest: StreamManifest,
    log: LogWriter | None,
    path: str,
) -> None:
    if log is not None:
        log.close()
    files_before = {page.file for page in old.segments.pages}
    pages = [page.file for page in manifest.segments.pages if page.file not in files_before]
    for file in (path, *(f"{directory}/{page}" for page in pages)):
        with suppress(Exception):
            files.remove(file)


def _says(files: Files, directory: str, version: int) -> bool:
    try:
        body = read_manifest(files, directory)
    except Exception:
        return True
    return body is not None and body["version"] == version
