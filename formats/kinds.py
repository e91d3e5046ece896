"""Format names, and their detection from file names, media types and magic bytes.

Magic bytes override suffixes.  Text without a known suffix is JSON if it starts with ``[`` or
``{``, else CSV.

Column types have their SQL or Arrow name: ``speed=double``, ``price=decimal(10,2)``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from ..core.json_text import JSON
from ..core.nested_types import is_list
from ..core.sql_text import quoted_name
from ..core.suggestion import did_you_mean
from ..errors import InvalidArgument, InvalidData

FORMATS = ("json", "ndjson", "csv", "arrow", "parquet")
"""``json`` is one array of records, ``arrow`` the IPC stream (or file)."""

READ_FORMATS = (*FORMATS, "lineprotocol", "cloudevents")
WRITE_FORMATS = FORMATS

_NAMED = {
    "json": (".json .geojson", "application/json text/json"),
    "ndjson": (
        ".ndjson .jsonl .jsonlines",
        "application/x-ndjson application/ndjson application/jsonl application/x-jsonlines "
        "application/jsonlines",
    ),
    "csv": (".csv .tsv .txt", "text/csv application/csv text/tab-separated-values"),
    "arrow": (
        ".arrow .arrows .ipc .feather",
        "application/vnd.apache.arrow.stream application/vnd.apache.arrow.file "
        "application/x-apache-arrow-stream",
    ),
    "parquet": (
        ".parquet .pq",
        "application/vnd.apache.parquet application/x-parquet application/parquet",
    ),
    "lineprotocol": (".lp", "application/x-line-protocol"),
    "cloudevents": ("", "application/cloudevents-batch+json application/cloudevents+json"),
    "xlsx": (".xlsx", ""),
}
"""Suffixes and media types of each format; the first media type is sent."""

_SUFFIX = {each: name for name, (suffixes, _) in _NAMED.items() for each in suffixes.split()}
_MEDIA = {each: name for name, (_, types) in _NAMED.items() for each in types.split()}
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


class SourceKind(NamedTuple):
    format: str
    compression: str | None


def media_type_of(format: str) -> str:
    if format not in _MEDIA.values():
        raise InvalidArgument(f"unknown format {format!r}; known are {', '.join(FORMATS)}")
    sent = _NAMED[format][1].split()[0]
    return f"{sent}; charset=utf-8" if format == "csv" else sent


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
    format_of_bytes: str | None = None
    if is_binary(head):
        format_of_bytes = "parquet" if head.startswith(b"PAR1") else "arrow"
    if format_of_bytes is not None:
        if format is not None and format != format_of_bytes:
            raise InvalidData(f"{name}: expected {format}, but the bytes are {format_of_bytes}")
        return format_of_bytes
    if format is not None:
        return format
    by_name = suffixes_of(name)
    if by_name is not None and by_name.format == "xlsx":
        raise InvalidData(f"{name}: expected an Excel workbook, and the bytes are none")
    if by_name is not None:
        return by_name.format
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return "json" if text[:1] in (b"[", b"{") else "csv"


_TYPES: dict[pa.DataType, str] = {
    pa.bool_(): "bool boolean",
    pa.int8(): "int8 tinyint",
    pa.int16(): "smallint int16",
    pa.int32(): "int integer int32",
    pa.int64(): "bigint long int64",
    pa.uint8(): "utinyint uint8",
    pa.uint16(): "usmallint uint16",
    pa.uint32(): "uinteger uint32",
    pa.uint64(): "ubigint uint64",
    pa.float32(): "real float float32 float4",
    pa.float64(): "double float64 float8",
    pa.string(): "varchar string text",
    pa.large_string(): "large_string",
    pa.binary(): "binary blob bytea",
    JSON: "json arrow.json",
    pa.date32(): "date date32",
    **{pa.timestamp(unit): f"timestamp_{unit}" for unit in ("s", "ms", "ns")},
    pa.timestamp("us"): "timestamp datetime timestamp_us",
    pa.timestamp("us", "UTC"): "timestamptz",
}
"""Names of types; the first one is shown."""

_NAMES = {name: type_ for type_, names in _TYPES.items() for name in names.split()}
_NAMES["timestamp with time zone"] = pa.timestamp("us", "UTC")
_MEMBER = re.compile(r'(?:"((?:[^"]|"")+)"|(\w+))\s+(.+)', re.DOTALL)
_DECIMAL = re.compile(r"(?:decimal|numeric|decimal128)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_TIMESTAMP = re.compile(r"timestamp\s*[\[(]\s*(s|ms|us|ns)\s*(?:,\s*(?:tz=)?([\w/+:-]+)\s*)?[\])]")


def _outside(text: str, separator: str) -> list[str]:
    parts, depth, begin, quoted = [], 0, 0, False
    for at, letter in enumerate(text):
        quoted ^= letter == '"'
        if not quoted:
            depth += (letter in "([<") - (letter in ")]>")
            if letter == separator and depth == 0:
                parts.append(text[begin:at])
                begin = at + 1
    return [*parts, text[begin:]]


def _parse_struct(inside: str, text: str) -> pa.DataType:
    fields = []
    for member in _outside(inside, ","):
        match = _MEMBER.fullmatch(member.strip())
        if match is None:
            raise InvalidArgument(
                f"a struct has names and types, such as struct(a bigint, b varchar); found {text!r}"
            )
        name = match[2] if match[1] is None else match[1].replace('""', '"')
        fields.append(pa.field(name, parse_type(match[3])))
    return pa.struct(fields)


def parse_type(text: str) -> pa.DataType:
    """Arrow type by name; ``double[]`` is a list, ``struct(a bigint, b varchar)`` a struct."""
    word = re.sub(r"\s+", " ", text.strip())
    lower = word.lower()
    type_ = _NAMES.get(lower)
    if type_ is not None:
        return type_
    if lower.endswith("[]"):
        return pa.list_(parse_type(word[:-2]))
    if lower.startswith("struct(") and lower.endswith(")"):
        return _parse_struct(word[7:-1], text)
    match = _DECIMAL.fullmatch(lower)
    if match is not None:
        precision, scale = int(match[1] or 18), int(match[2] or (0 if match[1] else 3))
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
        raise InvalidArgument(
            f"decimal takes 1 to 38 digits and a scale not above them, found {text!r}"
        )
    match = _TIMESTAMP.fullmatch(re.sub(r"(?i)^timestamp|(?i:tz=)", lambda m: m[0].lower(), word))
    if match is not None:
        return pa.timestamp(match[1], match[2])
    hint = did_you_mean(lower, _NAMES)
    raise InvalidArgument(
        f"unknown type {text!r}{hint} (known: bool, int8 to int64, uint8 to uint64, float, double, "
        "string, binary, json, date, timestamp[_s|_ms|_us|_ns], timestamptz, decimal(p,s); "
        "lists type[], structs struct(name type, ...))"
    )


def is_number(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    )


def name_of_type(type_: pa.DataType) -> str:
    if pa.types.is_decimal128(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_interval(type_) or pa.types.is_duration(type_):
        return "interval"
    if is_list(type_):
        return f"{name_of_type(type_.value_type)}[]"
    if pa.types.is_struct(type_):
        fields = (type_.field(i) for i in range(type_.num_fields))
        return f"struct({', '.join(f'{_quoted(f.name)} {name_of_type(f.type)}' for f in fields)})"
    return _TYPES[type_].split()[0] if type_ in _TYPES else str(type_)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else quoted_name(name)


def arrow_name_of_type(type_: pa.DataType) -> str:
    return str(type_.extension_name if isinstance(type_, pa.BaseExtensionType) else type_)


def columns_of(schema: pa.Schema) -> list[dict[str, object]]:
    """The columns of a stream, a view or a file."""
    return [
        {
            "name": field.name,
            "type": arrow_name_of_type(field.type),
            "sql_type": name_of_type(field.type),
            "nullable": field.nullable,
        }
        for field in schema
    ]


def parse_pairs(items: Iterable[str], what: str) -> dict[str, str]:
    """Read ``a=b`` items, several separated by commas outside brackets."""
    pairs: dict[str, str] = {}
    for item in items:
        for part in _outside(item, ","):
            if not part.strip():
                continue
            name, equals, value = part.partition("=")
            name, value = name.strip(), value.strip()
            if not equals or not name or not value:
                raise InvalidArgument(f"{what} takes name=value, found {part.strip()!r}")
            if pairs.setdefault(name, value) != value:
                raise InvalidArgument(f"{what} names {name!r} twice")
    return pairs


def parse_types(items: Iterable[str] | Mapping[str, str | pa.DataType]) -> dict[str, pa.DataType]:
    if isinstance(items, Mapping):
        return {
            name: parse_type(value) if isinstance(value, str) else value
            for name, value in items.items()
        }
    return {name: parse_type(value) for name, value in parse_pairs(items, "--types").items()}
