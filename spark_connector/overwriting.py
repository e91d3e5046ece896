"""The time range that an overwrite replaces: ``startTime`` and ``endTime``, or ``replaceWhere``.

``replaceWhere`` means the events that a SELECT with it would return, and must be a time range.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..core.times import time_text
from ..errors import InvalidArgument, InvalidData
from ..ingest.sink import Over
from ..schema import StreamSchema
from ..store.tail import ticks_of
from .backend import time_bounds
from .options import Options

__all__ = ["inside", "replaced_range", "replaces_range"]


def replaces_range(options: Options) -> str | None:
    """Name of the option that gives a range; None without one."""
    given = {
        "replaceWhere": options.replace_where,
        "startTime": options.start_time,
        "endTime": options.end_time,
    }
    return next((name for name, text in given.items() if text is not None), None)


def replaced_range(options: Options, schema: StreamSchema) -> Over:
    """The range in ticks; SqlError if ``replaceWhere`` is no time range."""
    if options.replace_where is not None:
        return _range_of(options.replace_where, schema)
    start, end = time_bounds(options, schema)
    if start is not None and end is not None and start >= end:
        raise InvalidArgument(
            f"expected endTime after startTime, found {options.start_time} and {options.end_time}"
        )
    return start, end


def _range_of(predicate: str, schema: StreamSchema) -> Over:
    from ..store import Store
    from ..store.memory_files import MemoryFiles
    from .pinned_catalog import PinnedCatalog, query_engine

    with Store.open("memory", files=MemoryFiles()) as store:
        store.create_stream("stream", schema)
        with query_engine(PinnedCatalog(store, empty=True)) as engine:
            return engine.time_range("stream", predicate)


def inside(batch: pa.RecordBatch, schema: StreamSchema, over: Over) -> pa.RecordBatch:
    """The batch, if all its events are in the range; else InvalidData."""
    if batch.column(schema.time).null_count:
        return batch  # refused at the write, with the column's name
    start, end = over
    ticks = ticks_of(batch, schema)
    outside = np.zeros(ticks.size, np.bool_)
    if start is not None:
        outside |= ticks < start
    if end is not None:
        outside |= ticks >= end
    if outside.any():
        tick = int(ticks[outside][0])
        shown = tick if schema.time_unit is None else time_text(tick, schema.time_type)
        raise InvalidData(
            f"an event at {shown} is not in the range that mode('overwrite') replaces: filter the "
            "DataFrame, or replace a longer range"
        )
    return batch
