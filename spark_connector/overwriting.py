"""Overwriting a range of times: which one the options of a write mean.

Purpose
    :func:`replaced_range` makes ticks of ``startTime`` and ``endTime``, or of ``replaceWhere``,
    which users of lake formats know.  :func:`inside` refuses rows that the range does not hold.

Guarantee
    ``replaceWhere`` is planned as any predicate, over a stream of that schema without events: it
    means the events that a SELECT with it would return.  One that says more than a range of times
    is refused before anything runs.
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
    """Name of the option that says that a range is replaced; None without one."""
    given = {
        "replaceWhere": options.replace_where,
        "startTime": options.start_time,
        "endTime": options.end_time,
    }
    return next((name for name, text in given.items() if text is not None), None)


def replaced_range(options: Options, schema: StreamSchema) -> Over:
    """The range, in ticks.

    Raises
    ------
    InvalidArgument
        A time cannot be read, or nothing lies in the range.
    SqlError
        ``replaceWhere`` is no range of times.
    """
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
    """A batch, when all of its events lie in the range.

    Raises
    ------
    InvalidData
        With the first event that does not.
    """
    if batch.column(schema.time).null_count:
        return batch  # refused with the name of the column when it is stored
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
