"""Frames: tables of the program that SQL may name beside streams.

Only the program registers them; data is verified in full (``core/soundness.py``).  Zoned times
become times in UTC; categories and dictionaries become their values.  Readers are read into memory
once, datasets by each query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...core.ownership import LOADING
from ...core.soundness import require_sound
from ...errors import InvalidArgument, InvalidData, SchemaMismatch
from ...formats.convert import flatten
from ...formats.tables import UNREADABLE, reader_of
from ...schema import stored_decimal

if TYPE_CHECKING:
    import pyarrow.dataset as ds


_TAKEN = (
    "a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a pandas or polars frame, or a "
    "list of dicts"
)


class Frame:
    """Data under a name, or rows of a system table; ``schema``: columns as SQL sees them."""

    def __init__(self, name: str, data: ds.Dataset | pa.Table) -> None:
        self.name = name
        self.schema = data.schema
        if not isinstance(data, pa.Table):
            self.schema = pa.schema([pa.field(f.name, _plain(f.type)) for f in data.schema])
        self._data: ds.Dataset | pa.Table | None = data

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows in order; raises InvalidArgument after ``forget``."""
        data = self._data
        if data is None:
            raise InvalidArgument(f"{self.name!r} is registered no more")
        wanted = pa.schema([self.schema.field(name) for name in columns])
        if isinstance(data, pa.Table):
            yield from data.select(list(columns)).to_batches()
            return
        for batch in data.scanner(columns=list(columns)).to_batches():
            try:
                if not batch.schema.equals(wanted):
                    plain = map(_decoded, batch.columns)
                    batch = pa.RecordBatch.from_arrays([*plain], names=wanted.names).cast(wanted)
                yield batch
            except pa.ArrowInvalid as error:
                raise InvalidData(f"{self.name!r}: {error}") from None

    def forget(self) -> None:
        self._data = None


def frame_of(name: str, data: Any) -> Frame:
    """Make a frame of tables, data frames, datasets, readers or lists of dicts; raises
    InvalidArgument, SchemaMismatch for what is no table, InvalidData for unsound Arrow data.
    """
    frame = frame_if_table(name, data)
    if frame is None:
        raise InvalidArgument(f"expected {_TAKEN}, found {type(data).__name__}")
    return frame


def frame_if_table(name: str, data: Any) -> Frame | None:
    """As ``frame_of``; None for what is no table."""
    with LOADING:  # imports pandas if installed
        import pyarrow.dataset as ds

    if isinstance(data, ds.Dataset):
        _check_names(name, data.schema)
        return Frame(name, data)
    reader = reader_of(data, repr(name))
    try:
        table = None if reader is None else reader.read_all()
    except UNREADABLE as error:
        reason = (str(error).splitlines() or [""])[0]
        raise SchemaMismatch(f"{name!r} cannot be read as a table: {reason}") from None
    if table is None:
        return None
    _check_names(name, table.schema)
    require_sound(table, name)
    return Frame(name, ds.InMemoryDataset(table))


def _check_names(name: str, schema: pa.Schema) -> None:
    doubled = [n for n, times in Counter(n.lower() for n in schema.names).items() if times > 1]
    if not schema.names or doubled:
        problem = f"{', '.join(doubled)} twice" if doubled else "no columns"
        raise InvalidArgument(f"a frame has columns of different names; {name!r} has {problem}")


def _decoded(column: pa.Array) -> pa.Array:
    return flatten(column) if pa.types.is_dictionary(column.type) else column


def _plain(type_: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(type_):
        return _plain(type_.value_type)
    if types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit)
    if types.is_large_string(type_) or str(type_) == "string_view" or types.is_null(type_):
        return pa.string()
    if types.is_large_binary(type_) or str(type_) == "binary_view":
        return pa.binary()
    if types.is_decimal(type_):
        return stored_decimal(type_)
    return pa.float32() if types.is_float16(type_) else type_
