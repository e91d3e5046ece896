"""Hashing (``key_hashes``) and exact grouping (``key_groups``) of keys, the values of a few
columns.

Equality is that of ``uniqueness``: -0.0 is 0.0 and NaN is NaN.  Hashes are valid in one process:
their random seed prevents forced collisions.  The values of a key are hashed in turn, eight bytes
at a time: state XOR bytes, times an odd constant, high half XORed into the low one.  A string is
preceded by its length.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.native import kernel
from ..core.sorting import numbered
from ..schema import Storage, StreamSchema
from .columns import ColumnView

__all__ = ["Hashes", "key_groups", "key_hashes", "with_whole_key"]

Hashes = npt.NDArray[np.uint64]

_SEED = np.uint64(secrets.randbits(64))


@kernel
def _mix_words(words, hashes):
    """Mix a word into each hash."""
    for i in range(hashes.shape[0]):
        mixed = (hashes[i] ^ words[i]) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        hashes[i] = mixed ^ (mixed >> np.uint64(29))


@kernel
def _mix_texts(offsets, data, hashes):
    """Mix a string into each hash."""
    for i in range(hashes.shape[0]):
        at = offsets[i]
        end = offsets[i + 1]
        mixed = (hashes[i] ^ np.uint64(end - at)) * np.uint64(0x9E3779B97F4A7C15)
        while at < end:
            word = np.uint64(0)
            stop = min(at + 8, end)
            for j in range(at, stop):
                word = (word << np.uint64(8)) | np.uint64(data[j])
            mixed = ((mixed ^ (mixed >> np.uint64(32))) ^ word) * np.uint64(0x9E3779B97F4A7C15)
            at = stop
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        hashes[i] = mixed ^ (mixed >> np.uint64(29))


def with_whole_key(batch: pa.RecordBatch, columns: Sequence[str]) -> npt.NDArray[np.int64] | None:
    """Rows whose key has no null; None for all of them."""
    valid = None
    for name in columns:
        column = batch.column(name)
        if column.null_count:
            there = column.is_valid().to_numpy(zero_copy_only=False)
            valid = there if valid is None else valid & there
    return None if valid is None else np.flatnonzero(valid)


def key_hashes(batch: pa.RecordBatch, columns: Sequence[str], schema: StreamSchema) -> Hashes:
    """The hash of each event's key; the columns have the schema's types and no nulls."""
    hashes = np.full(batch.num_rows, _SEED)
    for name in columns:
        attribute = schema.attribute(name)
        column = _canonical(batch.column(name))
        view = ColumnView(attribute, column)
        if attribute.storage in (Storage.STRING, Storage.BINARY):
            _mix_texts(view.values.astype(np.int64), view.data, hashes)
        elif attribute.storage is Storage.DECIMAL:
            words = view.values.view(np.uint64)
            _mix_words(words[::2].copy(), hashes)
            _mix_words(words[1::2].copy(), hashes)
        elif attribute.storage is Storage.BOOL:
            bits = column.to_numpy(zero_copy_only=False)
            _mix_words(bits.astype(np.uint64), hashes)
        elif attribute.storage is Storage.FLOAT:
            _mix_words(view.values.astype(np.float64).view(np.uint64), hashes)
        else:
            _mix_words(view.values.astype(np.int64).view(np.uint64), hashes)
    return hashes


def key_groups(batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """A number for each event of some batches, equal exactly where keys are equal."""
    groups = np.zeros(sum(batch.num_rows for batch in batches), np.int64)
    for name in columns:
        column = _canonical(pa.concat_arrays([batch.column(name) for batch in batches]))
        codes = column.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        several = groups * (int(codes.max(initial=0)) + 1) + codes
        groups = numbered(several)[1]
    return groups


def _canonical(column: pa.Array) -> pa.Array:
    """Floats with one bit pattern per value; other types unchanged."""
    if not pa.types.is_floating(column.type):
        return column
    plain = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 + 0.0 is 0.0
    return pc.if_else(pc.is_nan(plain), pa.scalar(float("nan"), column.type), plain)
