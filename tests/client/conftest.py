"""A database with its server, for the tests of clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.tests.server.conftest import live, readers  # noqa: F401

FLIGHTS = pa.schema(
    [
        pa.field("time", pa.timestamp("us"), False),
        pa.field("icao24", pa.string()),
        pa.field("altitude", pa.float64()),
        pa.field("fuel", pa.decimal128(10, 2)),
        pa.field("seen", pa.int64()),
        pa.field("day", pa.date32()),
        pa.field("raw", pa.binary()),
    ]
)


@pytest.fixture
def served(tmp_path: Path, live: Callable[..., Any]) -> Iterator[Any]:  # noqa: F811
    """An embedded database that a server on a socket serves; ``url`` is its address."""
    with chronicle.open(tmp_path / "store", live=True) as database:
        running = live(database)
        running.database = database
        running.url = f"http://127.0.0.1:{running.port}"
        yield running
