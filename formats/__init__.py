"""External formats: JSON, NDJSON, CSV, line protocol, Arrow and Parquet, compressed or not.

``EventReader`` reads with a ``Layout``, ``encode`` writes.  The package depends on neither store
nor server.  Names load their modules lazily.

Reading order::

    names             kinds (formats, column types)
    bytes             limits  sources  archives (decompression)
    records           dialect  chunks  flattening  jsonscan  jsontext  lineprotocol  csvtext
    values            decimals  nestedtext  time_text  time_rules  times  convert  time_parts
    Python objects    tables
    typed files       columnar (Arrow, Parquet)
    events            infer  layout  reader  looking (preview)
    in a worker       decoder  isolated
    output            writers
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..core.ownership import LOADING

if TYPE_CHECKING:
    from .chunks import BadRow, BadRowPolicy, fail
    from .kinds import (
        FORMATS,
        READ_FORMATS,
        arrow_name_of_type,
        detect,
        format_of_media_type,
        media_type_of,
        name_of_type,
        parse_pairs,
        parse_type,
        parse_types,
        stem_of,
        suffixes_of,
    )
    from .layout import Layout, conform
    from .limits import Limits
    from .reader import EventReader
    from .sources import ByteSource, Readable
    from .writers import encode, write

__all__ = [
    "FORMATS",
    "READ_FORMATS",
    "BadRow",
    "BadRowPolicy",
    "ByteSource",
    "EventReader",
    "Layout",
    "Limits",
    "Readable",
    "arrow_name_of_type",
    "conform",
    "detect",
    "encode",
    "fail",
    "format_of_media_type",
    "media_type_of",
    "name_of_type",
    "parse_pairs",
    "parse_type",
    "parse_types",
    "stem_of",
    "suffixes_of",
    "write",
]

_HOMES = {
    "chunks": ("BadRow", "BadRowPolicy", "fail"),
    "kinds": (
        *("FORMATS", "READ_FORMATS", "detect", "format_of_media_type", "media_type_of", "stem_of"),
        *("suffixes_of", "arrow_name_of_type", "name_of_type", "parse_pairs", "parse_type"),
        "parse_types",
    ),
    "layout": ("Layout", "conform"),
    "limits": ("Limits",),
    "reader": ("EventReader",),
    "sources": ("ByteSource", "Readable"),
    "writers": ("encode", "write"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            with LOADING:
                return getattr(import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
