"""Reading a source into an existing stream, here or in a worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from chronicle.formats.layout import Layout
from chronicle.formats.reader import EventReader
from chronicle.schema import StreamSchema

__all__ = ["read_batches"]


def read_batches(
    source: Any,
    format: str | None = None,
    *,
    schema: StreamSchema,
    time_format: str = "auto",
    **reading: Any,
) -> Iterator[pa.RecordBatch]:
    """Batches in exactly the stream's schema; ``reading`` as for ``EventReader``."""
    named = {name: reading.pop(name) for name in ("rename", "select") if name in reading}
    layout = Layout(time_format=time_format, target=schema, **named)
    return iter(EventReader(source, format, layout=layout, **reading))
