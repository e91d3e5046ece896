"""Stubs: the local remainder of a segment that has moved to an object.

``00000017.seg.cold`` replaces ``00000017.seg``.  It caches the tree's nodes, summary and footer, so
that planning and aggregating over whole leaves need no request; and leaf heads and dictionaries,
where each of the two is a small part of the segment.

Layout: the mark ``CHRCOLD`` and the version (a byte: 2 with heads, else 1), the length of the JSON
(uint64) and its XXH3-64, the JSON, and the cached page-aligned ranges, heads last::

    {"store": "s3://bucket/prefix", "key": "<store>/<stream>/00000017.seg",
     "bytes": 1073741824, "digest": "<xxh3-64 of the object>",
     "kept": [[offset, length], ...], "kept_digest": "<xxh3-64 of those bytes>",
     "heads": [[offset, length], ...], "heads_digest": "<xxh3-64 of those bytes>"}

Guarantee: a stub is durable before the segment's file is removed, and written only after the object
was read back and compared.  While both exist, the file is read.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from ..errors import CorruptStore, UnsupportedFormat
from .file_contract import Files
from .read_plan import Range

__all__ = ["PAGE", "SUFFIX", "ColdStub", "pages_of"]

SUFFIX = ".cold"
MAGIC = b"CHRCOLD"
VERSION = 2
PAGE = 4096
_HEAD = struct.Struct("<7sBQQ")


@dataclass(frozen=True)
class ColdStub:
    """Address and digests (XXH3-64) of a segment, and its cached page-aligned (offset, length)
    ranges.
    """

    store: str
    key: str
    length: int
    digest: str
    ranges: tuple[tuple[int, int], ...]
    kept_digest: str
    heads: tuple[tuple[int, int], ...] = ()
    heads_digest: str = ""

    def to_bytes(self, kept: bytes, heads: bytes = b"") -> bytes:
        body = json.dumps(
            {
                "store": self.store,
                "key": self.key,
                "bytes": self.length,
                "digest": self.digest,
                "kept": [list(found) for found in self.ranges],
                "kept_digest": self.kept_digest,
                **self._of_heads(),
            }
        ).encode()
        version = VERSION if self.heads else 1
        start = _HEAD.pack(MAGIC, version, len(body), xxh3_64_intdigest(body))
        return start + body + kept + heads

    def _of_heads(self) -> dict[str, object]:
        if not self.heads:
            return {}
        return {"heads": [list(found) for found in self.heads], "heads_digest": self.heads_digest}

    @classmethod
    def read(cls, files: Files, path: str) -> ColdStub:
        """Read the stub without the cached bytes; ``CorruptStore`` or ``UnsupportedFormat``."""
        with files.open(path) as file:
            if file.size < _HEAD.size:
                raise _damaged(path, f"it has {file.size} bytes")
            magic, version, length, checksum = _HEAD.unpack(bytes(file.read(0, _HEAD.size)))
            if magic != MAGIC:
                raise _damaged(path, "it is no stub of a segment")
            if version > VERSION:
                raise UnsupportedFormat(
                    f"{path} has format version {version}, this Chronicle reads up to {VERSION}: "
                    "use a newer release"
                )
            if length > file.size - _HEAD.size:
                raise _damaged(path, "it was cut")
            text = bytes(file.read(_HEAD.size, length))
        if xxh3_64_intdigest(text) != checksum:
            raise _damaged(path, "it does not hash to what it says")
        try:
            body = json.loads(text)
            return cls(
                body["store"],
                body["key"],
                body["bytes"],
                body["digest"],
                tuple((offset, size) for offset, size in body["kept"]),
                body["kept_digest"],
                tuple((offset, size) for offset, size in body.get("heads", ())),
                body.get("heads_digest", ""),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path, f"it misses something: {error!r}") from None

    def kept(self, files: Files, path: str) -> Iterator[tuple[int, memoryview]]:
        behind = sum(length for _, length in self.heads)
        return _ranges(files, path, self.ranges, self.kept_digest, behind)

    def kept_heads(
        self, files: Files, path: str, wanted: Sequence[Range]
    ) -> Iterator[tuple[int, memoryview]]:
        """Cached leaf heads that overlap ranges, as (offset, bytes); verified by their blocks."""
        heads = np.array(self.heads, np.int64).reshape(-1, 2)
        offsets, behind = heads[:, 0], heads.sum(axis=1)
        chosen = np.zeros(len(heads), np.bool_)
        for offset, length in wanted:
            low, high = np.searchsorted(behind, offset, "right"), offset + length
            chosen[low : np.searchsorted(offsets, high)] = True
        numbers = np.flatnonzero(chosen)
        if not len(numbers):
            return
        places = np.concatenate([[0], np.cumsum(heads[:, 1])])
        runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)  # adjacent in the stub
        with files.open(path) as file:
            begin = file.size - int(places[-1])
            if begin < 0:
                raise _damaged(path, "it was cut")
            asked = [
                (begin + int(places[run[0]]), int(places[run[-1] + 1] - places[run[0]]))
                for run in runs
            ]
            file.announce(asked)
            for run, place in zip(runs, asked, strict=True):
                content = memoryview(file.read(*place))
                for number in run.tolist():
                    start = int(places[number] - places[run[0]])
                    yield int(offsets[number]), content[start : start + int(heads[number, 1])]

    def check_heads(self, files: Files, path: str) -> None:
        for _ in _ranges(files, path, self.heads, self.heads_digest, 0):
            pass


def _ranges(
    files: Files, path: str, ranges: Sequence[tuple[int, int]], digest: str, behind: int
) -> Iterator[tuple[int, memoryview]]:
    size = sum(length for _, length in ranges)
    with files.open(path) as file:
        if file.size < size + behind:
            raise _damaged(path, "it was cut")
        content = memoryview(file.read(file.size - size - behind, size))
    if xxh3_64_hexdigest(content) != digest:
        raise _damaged(path, "what it keeps does not hash to what it says")
    at = 0
    for offset, length in ranges:
        yield offset, content[at : at + length]
        at += length


def _damaged(path: str, what: str) -> CorruptStore:
    return CorruptStore(
        f"{path} is damaged: {what}; restore it from a backup, or the stream from its objects with "
        "`chronicle restore`"
    )


def pages_of(ranges: Sequence[tuple[int, int]], length: int) -> tuple[tuple[int, int], ...]:
    """Byte ranges widened to whole pages of a file of that length, merged and ascending."""
    out: list[tuple[int, int]] = []
    for offset, size in sorted(ranges):
        first, end = offset // PAGE * PAGE, min(-(-(offset + size) // PAGE) * PAGE, length)
        if out and first <= sum(out[-1]):
            out[-1] = out[-1][0], max(sum(out[-1]), end) - out[-1][0]
        else:
            out.append((first, end - first))
    return tuple(out)
