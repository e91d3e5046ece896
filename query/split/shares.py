"""Groups of partitions by a hash of their keys, which is the same in every process.

Equal keys hash alike: nulls, zeros of both signs, all NaNs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.native import kernel
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..replay.base_reader import read_positions
from ..replay.timeline import Timeline

__all__ = ["of_share", "shares_of"]

Words = npt.NDArray[np.uint64]
STRETCH_EVENTS = 1 << 16
_NULL = np.uint64(0x9E3779B97F4A7C15)


@kernel
def _hash_bytes(offsets, data, out):  # type: ignore[no-untyped-def]
    """FNV-1a over each value, with a finaliser that spreads the last bytes over all bits."""
    for i in range(out.shape[0]):
        h = np.uint64(0xCBF29CE484222325)
        for at in range(offsets[i], offsets[i + 1]):
            h = (h ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
        h ^= h >> np.uint64(33)
        h *= np.uint64(0xFF51AFD7ED558CCD)
        out[i] = h ^ (h >> np.uint64(33))


def _mixed(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return words ^ (words >> np.uint64(33))


def _hashed(values: pa.Array) -> Words:
    type_ = values.type
    if pa.types.is_boolean(type_):
        return _mixed(np.asarray(values.cast(pa.uint8())).astype(np.uint64))
    if pa.types.is_floating(type_):
        floats = np.asarray(values.cast(pa.float64())) + 0.0  # no negative zero
        floats[np.isnan(floats)] = np.nan
        return _mixed(floats.view(np.uint64))
    if pa.types.is_integer(type_):
        wide = pa.uint64() if pa.types.is_unsigned_integer(type_) else pa.int64()
        return _mixed(np.asarray(values.cast(wide)).view(np.uint64))
    if pa.types.is_timestamp(type_) or pa.types.is_date64(type_):
        return _mixed(np.asarray(values.cast(pa.int64())).view(np.uint64))
    if pa.types.is_date32(type_):
        return _mixed(np.asarray(values.cast(pa.int32())).astype(np.int64).view(np.uint64))
    text = values if pa.types.is_binary(type_) else values.cast(pa.string()).cast(pa.binary())
    _, offsets, data = text.buffers()
    places = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1]
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    out = np.empty(len(text), np.uint64)
    _hash_bytes(places, content, out)
    return out


def shares_of(columns: Sequence[pa.Array], shares: int) -> npt.NDArray[np.int64]:
    total: Words | None = None
    for column in columns:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        encoded = pc.dictionary_encode(column)
        known = np.full(len(encoded.dictionary) + 1, _NULL, np.uint64)
        known[:-1] = _hashed(encoded.dictionary)
        codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        words = known[codes]
        total = words if total is None else _mixed(total * np.uint64(31) + words)
    assert total is not None
    found: npt.NDArray[np.int64] = (total % np.uint64(shares)).astype(np.int64)
    return found


def of_share(
    snapshot: Snapshot,
    columns: Sequence[str],
    keys: Sequence[str],
    share: int,
    shares: int,
    metrics: ScanMetrics | None = None,
    check: Callable[[], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    if snapshot.dirty_ranges():
        for batch in snapshot.scan(columns=columns, metrics=metrics, check=check):
            chosen = shares_of([batch.column(name) for name in keys], shares) == share
            if chosen.any():
                yield batch.filter(pa.array(chosen))
        return
    timeline = Timeline(snapshot)
    arrow = snapshot.schema.arrow
    key_schema = pa.schema([arrow.field(name) for name in keys])
    output = pa.schema([arrow.field(name) for name in columns])
    for first in range(0, timeline.total, STRETCH_EVENTS):
        if check is not None:
            check()
        end = min(first + STRETCH_EVENTS, timeline.total)
        read = read_positions(timeline, keys, key_schema, first, end, metrics)
        found = [shares_of(batch.columns, shares) == share for batch in read]
        chosen = np.concatenate(found)
        places = np.flatnonzero(chosen)
        if not len(places):
            continue
        low, high = int(places[0]), int(places[-1]) + 1
        at = low
        for batch in read_positions(timeline, columns, output, first + low, first + high, None):
            mask = chosen[at : at + batch.num_rows]
            at += batch.num_rows
            if mask.any():
                yield batch.filter(pa.array(mask))
