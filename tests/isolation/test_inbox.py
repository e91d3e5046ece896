"""Messages for several threads over one channel, in both directions at once."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from chronicle.isolation.channel import Channel, ChannelClosed, Inbox

from ..patience import PATIENCE_S

SCANS = 6
MESSAGES = 200


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    owner, worker = Channel(ours, trusted=False), Channel(theirs, trusted=True)
    with contextlib.closing(owner), contextlib.closing(worker):
        yield owner, worker


def test_each_thread_gets_its_own_in_order(ends: tuple[Channel, Channel]) -> None:
    owner, worker = ends
    inbox = Inbox(worker)
    for number in range(1, SCANS + 1):
        inbox.expect(number)

    def take(number: int) -> list[int]:
        return [inbox.take(number)[0]["at"] for _ in range(MESSAGES)]

    with ThreadPoolExecutor(SCANS + 1) as threads:
        taken = [threads.submit(take, number) for number in range(1, SCANS + 1)]
        for at in range(MESSAGES):
            for number in range(1, SCANS + 1):
                owner.send({"scanned": number, "at": at})
            owner.send({"scanned": 99, "at": at})  # nobody waits for it
        assert [one.result(PATIENCE_S) for one in taken] == [list(range(MESSAGES))] * SCANS
    owner.send({"job": "next"})
    assert inbox.take()[0] == {"job": "next"}


def test_two_sides_that_both_send_do_not_wait_for_each_other(ends: tuple[Channel, Channel]) -> None:
    owner, worker = ends
    inbox = Inbox(worker)
    inbox.expect(1)
    data = bytes(1 << 20)

    def send_inputs() -> None:
        for _ in range(20):
            owner.send({"scanned": 1}, [data])

    sender = threading.Thread(target=send_inputs, daemon=True)
    sender.start()

    def send_results() -> None:  # takes nothing until all is sent
        for _ in range(20):
            inbox.send({"batch": 1}, [data])

    results = threading.Thread(target=send_results, daemon=True)
    results.start()
    sender.join(PATIENCE_S)  # the owner reads only when it has sent everything
    assert not sender.is_alive()
    received = [owner.receive()[1].size for _ in range(20)]  # type: ignore[union-attr]
    results.join(PATIENCE_S)
    assert received == [1 << 20] * 20
    assert [inbox.take(1)[1].size for _ in range(20)] == [1 << 20] * 20  # type: ignore[union-attr]


def test_an_owner_that_is_gone_ends_all_who_wait(ends: tuple[Channel, Channel]) -> None:
    owner, worker = ends
    inbox = Inbox(worker)
    inbox.expect(1)
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(inbox.take, number) for number in (0, 1)]
        owner.close()
        for one in waiting:
            with pytest.raises(ChannelClosed):
                one.result(PATIENCE_S)
