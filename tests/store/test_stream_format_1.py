"""A store that was written when the format was fixed stays readable, and can be gone on with."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from chronicle.store.store import Store
from chronicle.store.stream import EventStream

FIXTURES = Path(__file__).parents[1] / "fixtures"
PLACE = FIXTURES / "format_1"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_format_1", FIXTURES / "make_format_1.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_every_event_is_read_as_it_was_written(maker: ModuleType, codec: str) -> None:
    with Store.open(PLACE, "r") as store:
        snapshot = store.stream(codec).snapshot()
        assert snapshot.count == maker.EVENTS
        found = pa.Table.from_batches(snapshot.scan(), schema=snapshot.schema.arrow)
    assert found.equals(maker.expected()[codec].cast(found.schema))


def test_it_passes_the_check() -> None:
    with Store.open(PLACE, "r") as store:
        report = store.check()
    assert report.ok, report.problems
    assert (report.streams, report.events) == (3, 2100)


def test_a_copy_can_be_written_to(tmp_path: Path) -> None:
    shutil.copytree(PLACE, tmp_path / "store")
    with Store.open(tmp_path / "store") as store:
        for codec in store.streams():
            stream = store.stream(codec)
            assert isinstance(stream, EventStream)
            last = pa.Table.from_batches(stream.snapshot().scan()).slice(699)
            stream.append(last)
            stream.compact()
            assert stream.snapshot().count == 701
        assert store.check().ok


def test_todays_writer_writes_the_same_events(maker: ModuleType, tmp_path: Path) -> None:
    """The script still makes what it made, so the fixture and its expectation belong together."""
    maker.make(tmp_path / "store")
    with Store.open(tmp_path / "store", "r") as new, Store.open(PLACE, "r") as old:
        for codec in ("none", "lz4", "zstd"):
            tables = [
                pa.Table.from_batches(store.stream(codec).snapshot().scan()) for store in (new, old)
            ]
            assert tables[0].equals(tables[1])


def test_the_fixture_is_small() -> None:
    assert sum(file.stat().st_size for file in PLACE.rglob("*") if file.is_file()) < 200_000
