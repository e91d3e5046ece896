"""A fixture of many test files: an open store with empty streams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.schema import StreamSchema


def timed(**columns: pa.DataType) -> StreamSchema:
    """Of a stream with integer time ``t`` and other columns."""
    fields = [pa.field("t", pa.int64(), False), *columns.items()]
    return StreamSchema(pa.schema(fields), "t")


def store_with(*streams: str, schema: pa.Schema) -> Any:
    """A fixture of a store in which each stream has this schema, and time ``t``."""

    @pytest.fixture
    def opened(tmp_path: Path) -> Iterator[chronicle.Database]:
        with chronicle.open(tmp_path / "store") as database:
            for stream in streams:
                database.create_stream(stream, schema, time="t")
            yield database

    return opened
