"""The pipe between a thread that computes and a loop that sends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from chronicle.errors import QueryCancelled
from chronicle.server.service import row_stream as module
from chronicle.server.service.row_stream import BodyPipe


def write(pipe: BodyPipe, pieces: list[bytes], error: Exception | None = None) -> threading.Thread:
    def work() -> None:
        try:
            for piece in pieces:
                pipe.write(piece)
        except QueryCancelled as cancelled:
            pipe.end(cancelled)
        else:
            pipe.end(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


async def read_all(pipe: BodyPipe) -> bytes:
    blocks = []
    while (block := await pipe.next_block()) is not None:
        blocks.append(block)
    return b"".join(blocks)


@pytest.mark.parametrize("size", [0, 1, 1000, 65_535, 65_536, 200_000])
def test_bytes_arrive_in_order(size: int) -> None:
    async def main() -> None:
        pieces = [bytes([number % 251]) * size for number in range(40)]
        pipe = BodyPipe()
        write(pipe, pieces)
        assert await read_all(pipe) == b"".join(pieces)
        assert pipe.complete
        assert pipe.written == 40 * size

    asyncio.run(main())


def test_a_slow_reader_holds_the_writer_back() -> None:
    async def main() -> None:
        pipe = BodyPipe()
        thread = write(pipe, [b"x" * 100_000] * 1000)
        await asyncio.sleep(0.05)
        assert pipe.written <= module.QUEUE_BYTES + 3 * 100_000
        assert len(await read_all(pipe)) == 100_000_000
        thread.join()

    asyncio.run(main())


def test_errors_come_after_the_bytes() -> None:
    async def main() -> None:
        pipe = BodyPipe()
        write(pipe, [b"a" * 70_000], ValueError("no"))
        assert await pipe.next_block() == b"a" * 70_000
        with pytest.raises(ValueError, match="no"):
            await pipe.next_block()
        assert not pipe.complete

    asyncio.run(main())


@pytest.mark.parametrize("full", [False, True])
def test_a_reader_that_leaves_ends_the_writer(full: bool) -> None:
    async def main() -> None:
        pipe = BodyPipe()
        if full:
            thread = write(pipe, [b"x" * 100_000] * 1000)
            await asyncio.sleep(0.05)
            pipe.abandon()
        else:
            pipe.abandon()
            thread = write(pipe, [b"x" * 100_000] * 1000)
        thread.join()

    asyncio.run(main())


def test_a_small_answer_is_complete_with_its_first_block() -> None:
    async def main() -> None:
        for _ in range(200):
            pipe = BodyPipe()
            write(pipe, [b"a", b"b"])
            assert await pipe.next_block() == b"ab"
            assert pipe.complete

    asyncio.run(main())
