"""Format names, and their detection from file names, media types and magic bytes.

Magic bytes override suffixes.  Text without a known suffix is JSON if it starts with ``[`` or
``{``, else CSV.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ..errors import InvalidArgument, InvalidData

__all__ = [
    "COMPRESSIONS",
    "FORMATS",
    "READ_FORMATS",
    "WRITE_FORMATS",
    "SourceKind",
    "detect",
    "format_of_media_type",
    "is_archive",
    "is_binary",
    "media_type_of",
    "sniff_compression",
    "stem_of",
    "suffixes_of",
]

FORMATS = ("json", "ndjson", "csv", "arrow", "parquet")
"""``json`` is one array of records, ``arrow`` the IPC stream (or file)."""

READ_FORMATS = (*FORMATS, "lineprotocol", "cloudevents")
WRITE_FORMATS = FORMATS

COMPRESSIONS = ("gzip", "zstd", "bz2", "lz4")

_SUFFIX = {
    ".json": "json",
    ".geojson": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".jsonlines": "ndjson",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".lp": "lineprotocol",
    ".xlsx": "xlsx",
}
_COMPRESSION_SUFFIX = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".bz2": "bz2",
    ".lz4": "lz4",
    ".zip": "zip",
}
_COMPRESSION_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bz2"),
    (b"\x04\x22\x4d\x18", "lz4"),
)
_MEDIA = {
    "application/json": "json",
    "text/json": "json",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/x-jsonlines": "ndjson",
    "application/jsonlines": "ndjson",
    "text/csv": "csv",
    "application/csv": "csv",
    "text/tab-separated-values": "csv",
    "application/vnd.apache.arrow.stream": "arrow",
    "application/vnd.apache.arrow.file": "arrow",
    "application/x-apache-arrow-stream": "arrow",
    "application/vnd.apache.parquet": "parquet",
    "application/x-parquet": "parquet",
    "application/parquet": "parquet",
    "application/x-line-protocol": "lineprotocol",
    "application/cloudevents+json": "cloudevents",
    "application/cloudevents-batch+json": "cloudevents",
}
_MEDIA_OUT = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
    "lineprotocol": "application/x-line-protocol",
    "cloudevents": "application/cloudevents-batch+json",
}


class SourceKind(NamedTuple):
    format: str
    compression: str | None


def media_type_of(format: str) -> str:
    try:
        return _MEDIA_OUT[format]
    except KeyError:
        raise InvalidArgument(
            f"unknown format {format!r}; known are {', '.join(FORMATS)}"
        ) from None


def format_of_media_type(media_type: str) -> str | None:
    """Format for a ``Content-Type`` or one ``Accept`` entry; None if unknown."""
    return _MEDIA.get(media_type.split(";", 1)[0].strip().lower())


def _split(name: str) -> tuple[str, str | None, str | None]:
    base = os.path.basename(name)
    stem, suffix = os.path.splitext(base)
    compression = _COMPRESSION_SUFFIX.get(suffix.lower())
    if compression is not None:
        base = stem
        stem, suffix = os.path.splitext(base)
    format_ = _SUFFIX.get(suffix.lower())
    return (stem if format_ is not None else base), format_, compression


def stem_of(name: str) -> str:
    """File name without its directory and its format and compression suffixes."""
    return _split(name)[0]


def suffixes_of(name: str) -> SourceKind | None:
    """Format and compression by suffixes; None for unknown ones."""
    _, format_, compression = _split(name)
    return None if format_ is None else SourceKind(format_, compression)


def sniff_compression(head: bytes) -> str | None:
    for magic, compression in _COMPRESSION_MAGIC:
        if head.startswith(magic):
            return compression
    return None


def is_binary(head: bytes) -> bool:
    return head.startswith((b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"))


def is_archive(head: bytes) -> bool:
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def detect(name: str, head: bytes, format: str | None = None) -> str:
    """Format by decompressed first bytes and name; InvalidData if they contradict ``format``."""
    if format is not None and format not in READ_FORMATS:
        raise InvalidArgument(f"unknown format {format!r}; known are {', '.join(READ_FORMATS)}")
    found: str | None = None
    if is_binary(head):
        found = "parquet" if head.startswith(b"PAR1") else "arrow"
    if found is not None:
        if format is not None and format != found:
            raise InvalidData(f"{name}: expected {format}, but the bytes are {found}")
        return found
    if format is not None:
        return format
    by_name = suffixes_of(name)
    if by_name is not None and by_name.format == "xlsx":
        raise InvalidData(f"{name}: expected an Excel workbook, and the bytes are none")
    if by_name is not None:
        return by_name.format
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return "json" if text[:1] in (b"[", b"{") else "csv"
