"""Relations in memory (pairs of a join, results of a subquery) queried like streams."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ..indexes.stream_indexes import StreamIndexes
from ..query.contract.access import VisibleStreams
from ..query.engine import QueryEngine
from ..schema import StreamSchema
from ..store.snapshot import Snapshot, StreamState
from ..store.tail import MemoryLeaf

__all__ = ["WithRelation", "engine_with", "snapshot_of"]


class WithRelation(VisibleStreams):
    """A catalog with one additional relation."""

    def __init__(self, engine: QueryEngine, name: str, schema: StreamSchema) -> None:
        super().__init__(engine.catalog, lambda _: True)
        self._name = name
        self._schema = schema

    def streams(self) -> list[str]:
        return [*super().streams(), self._name]

    def stream_schema(self, name: str) -> StreamSchema:
        return self._schema if name == self._name else super().stream_schema(name)

    def snapshot(self, name: str) -> Snapshot:
        if name == self._name:
            return snapshot_of(self._schema.arrow.empty_table().to_batches(), self._schema)
        return super().snapshot(name)

    def indexes_of(self, name: str) -> StreamIndexes | None:
        return None if name == self._name else super().indexes_of(name)


def engine_with(
    engine: Callable[[], QueryEngine], name: str, schema: StreamSchema
) -> Callable[[], QueryEngine]:
    """Lazily, the query engine with an additional relation."""
    known: list[tuple[QueryEngine, QueryEngine]] = []

    def made() -> QueryEngine:
        whole = engine()
        if not known or known[0][0] is not whole:
            known[:] = [(whole, whole.over_catalog(WithRelation(whole, name, schema)))]
        return known[0][1]

    return made


def snapshot_of(batches: list[pa.RecordBatch], schema: StreamSchema) -> Snapshot:
    """Rows in time order as a stream snapshot."""
    whole = pa.Table.from_batches(batches, schema.arrow).combine_chunks().to_batches()
    if not whole or not whole[0].num_rows:
        return Snapshot(StreamState(schema, 0, 0, (), (), (), None, 0, 0, None, 0))
    leaf = MemoryLeaf(whole[0], schema)
    state = StreamState(schema, 0, 0, (), (), (), lambda: leaf, leaf.events, 0, leaf.last, 0)
    return Snapshot(state)
