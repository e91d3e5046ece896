"""Memory that the owner writes and a worker reads: places, their end, and what is refused."""

from __future__ import annotations

import gc
import mmap
import os
import random
import sys

import pyarrow as pa
import pytest

from chronicle.isolation.channel import Mapped, Region

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux")


def mapped(region: Region) -> Mapped:
    return Mapped(region.descriptor(), region.size)


def test_what_is_put_is_read_and_released() -> None:
    region = Region()
    worker = mapped(region)
    place = region.put([b"abc", b"", b"x" * 100])
    assert place is not None
    ticket, _, size = place
    assert size == 64 + 128
    data = worker.buffer(*place)
    part = data.slice(64, 100)
    assert data.to_pybytes()[:3] == b"abc"
    del data
    gc.collect()
    assert worker.take_released() == []  # the slice holds it
    assert part.to_pybytes() == b"x" * 100
    del part
    assert worker.take_released() == [ticket]
    assert worker.take_released() == []
    region.close()


def test_the_descriptor_of_a_worker_does_not_write() -> None:
    region = Region()
    file = region.descriptor()
    with pytest.raises(OSError):
        os.write(file, b"x")
    with pytest.raises(PermissionError):
        mmap.mmap(file, region.size, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    os.close(file)
    region.close()


def test_places_that_live_do_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put and released in any order; what is there stays as it was put."""
    monkeypatch.setattr(Region, "size", 1 << 16)
    chance = random.Random(3)
    region = Region()
    worker = mapped(region)
    live: dict[int, tuple[bytes, pa.Buffer]] = {}
    refused = 0
    for _ in range(4000):
        if live and chance.random() < 0.5:
            ticket = chance.choice(list(live))
            text, buffer = live.pop(ticket)
            assert buffer.to_pybytes()[: len(text)] == text
            del buffer
            region.release(worker.take_released())
        text = chance.randbytes(chance.choice([1, 64, 1000, 9000, 30_000]))
        place = region.put([text])
        if place is None:
            refused += 1
            continue
        assert place[0] not in live
        live[place[0]] = text, worker.buffer(*place)
        assert sum(len(text) for text, _ in live.values()) <= region.size
    for text, buffer in live.values():
        assert buffer.to_pybytes()[: len(text)] == text
    assert 0 < refused < 3000
    region.reset()
    assert region.put([b"x" * 60_000]) is not None
    region.close()


def test_what_is_said_of_an_earlier_piece_of_work_frees_nothing_of_the_next() -> None:
    region = Region()
    worker = mapped(region)
    earlier = region.put([b"x" * 100])
    assert earlier is not None
    worker.buffer(*earlier)  # let go of at once, and not told before the next piece of work
    region.reset()
    place = region.put([b"y" * 100])
    assert place is not None
    buffer = worker.buffer(*place)
    region.release(worker.take_released())
    assert region.put([b"z" * 100]) is not None
    assert buffer.to_pybytes()[:100] == b"y" * 100
    region.close()


def test_a_place_that_is_none_is_nothing() -> None:
    region = Region()
    region.release([17, -1, 1 << 70])
    assert region.put([]) is None
    assert region.put([b"x" * (region.size + 1)]) is None
    region.close()
