"""Verification of runs against events (``chronicle check``); continues after problems.

Reads every block of the index and every value of the attribute.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import CorruptStore
from ..store.layout import Encoding
from ..store.leaf_map import leaf_map
from ..store.packing import unpack
from ..store.segment import SegmentView
from ..store.snapshot import StreamState
from .index_key import IndexKey, index_key
from .keys import encode, ticks_at, unpack_positions
from .opened import OpenedIndexes, RunsChanged, TimeRange
from .runs import BLOCK_ENTRIES, Gaps, Run, key_counts, read_dictionary


def verify_indexes(indexes: OpenedIndexes, state: StreamState) -> list[str]:
    """Compare runs with events; returns problems.  Skips replaced runs and dropped segments."""
    problems = [indexes.fault] if indexes.fault else []
    catalogue = indexes.catalogue()
    views = {view.file.segment_id: view.whole for view in state.segments}
    names = {index: name for name, index in catalogue.attributes.items()}
    for (index, segment, first), (_, why) in sorted(indexes.damaged.items()):
        what = f"index on {names.get(index, index)}" if index else "times"
        problems.append(f"{what}, segment {segment}, positions from {first}: {why}")

    def checked(what: str, verify: Callable[[], None]) -> None:
        try:
            verify()
        except RunsChanged as error:
            if str(error):
                problems.append(f"{what}: {error}")
        except (CorruptStore, ValueError, IndexError) as error:
            problems.append(f"{what}: {error}")

    for (index, segment), listed in catalogue.runs.items():
        if segment not in views:
            if indexes.writable:
                problems.append(
                    f"index on {names[index]}: segment {segment} is not part of the stream"
                )
            continue
        key = index_key(names[index], state.schema)
        for run in listed:
            what = f"index on {names[index]}, segment {segment}, positions {run.first} to {run.end}"
            checked(what, partial(verify_run, indexes, run, views[segment], key))
    for segment, ranges in catalogue.times.items():
        for times in ranges if segment in views else ():
            what = f"times of segment {segment} from {times.first}"
            checked(what, partial(verify_times, indexes, times, views[segment]))
    return problems


def verify_run(indexes: OpenedIndexes, run: Run, view: SegmentView, key: IndexKey) -> None:
    if run.end > view.events:
        raise CorruptStore(f"it ends at {run.end}, the segment at {view.events}")
    count = run.end - run.first
    keys = np.empty(run.entries, np.uint64)
    positions = np.empty(run.entries, np.int64)
    for block in range(run.blocks):
        start, entries = block * BLOCK_ENTRIES, run.block_entries(block)
        data = memoryview(indexes.block(b"k", run, block, stored=True))
        part = unpack(data, Encoding.DELTA, entries, 0, entries)
        keys[start : start + entries] = part.view(np.uint64)
        if keys[start] != run.fences[block]:
            raise CorruptStore(f"the fence of block {block} is not its first key")
        words = indexes.words(b"p", run, block, stored=True)
        unpack_positions(words, run.width, 0, entries, positions[start : start + entries])
    if run.entries and np.any(keys[1:] < keys[:-1]):
        raise CorruptStore("its keys are not in order")
    if len(run.counts) and not np.array_equal(run.counts, key_counts(keys)):
        raise CorruptStore("it counts its keys otherwise than they are")
    nulls = np.zeros(0, np.int64)
    if run.listed:
        nulls = np.empty(run.nulls, np.int64)
        unpack_positions(indexes.words(b"n", run, stored=True), run.width, 0, run.nulls, nulls)
    everything = np.sort(np.concatenate([positions, nulls]))
    if len(everything) and not np.array_equal(everything, np.arange(count)):
        raise CorruptStore("it does not hold every position exactly once")
    looks_back = run.unknown >= 0  # older runs do not look back beyond their start
    values = key.column(leaf_map(view), run.first, run.end, run.seen if looks_back else run.first)
    if looks_back:
        _verify_gaps(run, values.gaps, nulls)
    column = values.column
    if column is None or column.null_count == count:
        if run.entries:
            raise CorruptStore("it has entries, the attribute is null throughout")
        return
    array = pa.concat_arrays(column.chunks)
    if array.null_count != run.nulls:
        raise CorruptStore(f"it has {run.nulls} nulls, the events have {array.null_count}")
    expected, dictionary = encode(array.take(pa.array(positions)), key.attribute)
    if run.text == "dictionary":
        stored = read_dictionary(indexes.block(b"s", run, stored=True))
        if stored != dictionary:
            raise CorruptStore("its dictionary differs from the values of the events")
    if not np.array_equal(expected, keys):
        raise CorruptStore("its keys differ from the values of the events")


def _verify_gaps(run: Run, gaps: Gaps | None, nulls: npt.NDArray[np.int64]) -> None:
    if gaps is None:
        raise CorruptStore("it tells nulls apart, which attributes do not have")
    nulls_end = run.unknown + run.absent
    parts = (gaps.unknown, nulls[: run.unknown]), (gaps.absent, nulls[run.unknown : nulls_end])
    if not all(np.array_equal(*pair) for pair in parts):
        raise CorruptStore(
            f"{run.unknown} values are not known and {run.absent} look back at nothing, of the "
            f"events {len(gaps.unknown)} and {len(gaps.absent)}, or other ones"
        )


def verify_times(indexes: OpenedIndexes, times: TimeRange, view: SegmentView) -> None:
    count = times.end - times.first
    ticks = np.empty(count, np.int64)
    ticks_at(indexes.times(times, stored=True), count, np.arange(count), ticks)
    if not np.array_equal(ticks, leaf_map(view).ticks(times.first, times.end)):
        raise CorruptStore("the times differ from those of the events")
