"""Streams with indexes, in stores of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store

Opened = Callable[..., tuple[Any, StreamIndexes]]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """A stream without events, and indexes of these names."""
    with ExitStack() as stack:

        def open_(schema: StreamSchema, *names: str, **options: Any) -> tuple[Any, StreamIndexes]:
            store = stack.enter_context(Store.open(tmp_path / "store", "rw"))
            stream = store.create_stream("s", schema, StreamOptions(**options))
            indexes = stack.enter_context(closing(StreamIndexes(tmp_path / "idx", True)))
            for name in names:
                indexes.create(name, schema)
            return stream, indexes

        yield open_
