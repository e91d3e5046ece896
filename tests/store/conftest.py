"""What the tests of the store share: one schema, batches of it, a store in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.schema import StreamSchema
from chronicle.store.deleting import Choice
from chronicle.store.snapshot import Snapshot
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles

SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("n", pa.int64()), ("s", pa.string())]), "t")


def batch_of(times: Sequence[int], first: int = 0, names: int = 4) -> pa.RecordBatch:
    """Events at these times, numbered from ``first`` on, under so many names in turn."""
    numbers = range(first, first + len(times))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(times, pa.int64()),
            pa.array(numbers, pa.int64()),
            pa.array([f"s{n % names}" for n in numbers]),
        ],
        schema=SCHEMA.arrow,
    )


def numbers(snapshot: Snapshot) -> list[int]:
    """The numbers of a snapshot's events, in time order."""
    return [n for batch in snapshot.scan(columns=["n"]) for n in batch.column(0).to_pylist()]


def chosen(
    mask: Callable[[pa.RecordBatch], Any], start: int | None = None, end: int | None = None
) -> Choice:
    """Of the events of a range those that a mask of each batch names; the time comes first."""

    def choose(snapshot: Snapshot) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for batch in snapshot.scan(start, end):
            yield batch.column(0).to_numpy(), np.asarray(mask(batch), np.bool_)

    return choose


def numbered(wanted: set[int]) -> Choice:
    """The events of these numbers."""
    return chosen(lambda batch: np.isin(batch.column("n"), list(wanted)))


@pytest.fixture
def memory() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def store(memory: MemoryFiles) -> Iterator[Store]:
    with Store.open("memory", files=memory) as opened:
        yield opened
