"""Relations that are no streams, for a query that is evaluated over them as over streams.

Purpose
    A join's condition and projection are evaluated over its pairs, and a query over a subquery over
    the results of that.  :class:`WithRelation` is a catalog that has such a relation beside the
    streams, and :func:`snapshot_of` shows rows in memory as a stream at one moment.
"""

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
    """A catalog with one relation more."""

    def __init__(self, engine: QueryEngine, name: str, schema: StreamSchema) -> None:
        super().__init__(engine.catalog, lambda _: True)
        self._name = name
        self._schema = schema

    def streams(self) -> list[str]:
        """Names of all streams, and of the relation."""
        return [*super().streams(), self._name]

    def stream_schema(self, name: str) -> StreamSchema:
        """Of the relation, too."""
        return self._schema if name == self._name else super().stream_schema(name)

    def snapshot(self, name: str) -> Snapshot:
        """Of the relation: without rows; those it has are given with the region."""
        if name == self._name:
            return snapshot_of(self._schema.arrow.empty_table().to_batches(), self._schema)
        return super().snapshot(name)

    def indexes_of(self, name: str) -> StreamIndexes | None:
        """The relation has none."""
        return None if name == self._name else super().indexes_of(name)


def engine_with(
    engine: Callable[[], QueryEngine], name: str, schema: StreamSchema
) -> Callable[[], QueryEngine]:
    """The query engine, when it is needed, with a relation more."""
    known: list[tuple[QueryEngine, QueryEngine]] = []

    def made() -> QueryEngine:
        whole = engine()
        if not known or known[0][0] is not whole:
            known[:] = [(whole, whole.over_catalog(WithRelation(whole, name, schema)))]
        return known[0][1]

    return made


def snapshot_of(batches: list[pa.RecordBatch], schema: StreamSchema) -> Snapshot:
    """Rows in the order of time as a stream at one moment."""
    whole = pa.Table.from_batches(batches, schema.arrow).combine_chunks().to_batches()
    if not whole or not whole[0].num_rows:
        return Snapshot(StreamState(schema, 0, 0, (), (), (), None, 0, 0, None, 0))
    leaf = MemoryLeaf(whole[0], schema)
    state = StreamState(schema, 0, 0, (), (), (), lambda: leaf, leaf.events, 0, leaf.last, 0)
    return Snapshot(state)
