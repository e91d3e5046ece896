"""Session windows by replay; the open session is carried from batch to batch as a partial."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from . import kernels as k
from .fields import FieldPlan
from .slices import WindowMetrics, fold_batch, ticks_of

__all__ = ["session_runs", "session_slices"]

Words = npt.NDArray[np.int64]


@kernel
def session_runs(ticks, gap, starts):  # type: ignore[no-untyped-def]
    """Divide ascending ticks at pauses above ``gap``; run i is [starts[i], starts[i + 1])."""
    runs = 0
    count = ticks.size
    if count:
        starts[0] = 0
        runs = 1
    for i in range(1, count):
        # the difference of two ticks may exceed 63 bits, but not 64
        if np.uint64(ticks[i]) - np.uint64(ticks[i - 1]) > np.uint64(gap):
            starts[runs] = i
            runs += 1
    starts[runs] = count
    return runs


def session_slices(
    batches: Iterable[pa.RecordBatch], plan: FieldPlan, gap: int, metrics: WindowMetrics
) -> Iterator[Words]:
    """Partials of complete sessions in time order; the plan must have its span."""
    time = plan.schema.time
    fields = plan.own.fields
    held: Words | None = None
    previous = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        ticks = ticks_of(batch.column(batch.schema.get_field_index(time)))
        starts = np.empty(ticks.size + 1, np.int64)
        runs = session_runs(ticks, gap, starts)
        metrics.events += ticks.size
        words = fold_batch(batch, ticks, starts, runs, plan)
        if held is not None:
            both = np.concatenate((held, words))
            ids = np.arange(len(both))
            if int(ticks[0]) - previous <= gap:
                ids[1:] -= 1
            words = np.empty_like(both)
            count = k.merge_equal(
                ids, both, np.arange(len(both)), fields, np.empty_like(ids), words
            )
            words = words[:count]
        previous = int(ticks[-1])
        held = words[-1:].copy()
        if len(words) > 1:
            metrics.slices += len(words) - 1
            yield words[:-1]
    if held is not None:
        metrics.slices += 1
        yield held
