"""Pinned versions: one state for many requests, for a while."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chronicle.errors import SnapshotExpired
from chronicle.server.service.positions import PinnedSnapshots


class Snapshot:
    def __init__(self, version: int) -> None:
        self.version = version


class World:
    """A stream whose version moves, and a clock."""

    def __init__(self, most: int = 10) -> None:
        self.version = 1
        self.now = 0.0
        self.taken: weakref.WeakSet[Snapshot] = weakref.WeakSet()
        self.pins = PinnedSnapshots(self.take, 600, most, clock=lambda: self.now)  # type: ignore[arg-type]

    def take(self, name: str) -> Snapshot:
        taken = Snapshot(self.version)
        self.taken.add(taken)
        return taken

    @property
    def held(self) -> list[int]:
        return sorted(s.version for s in self.taken)

    @contextmanager
    def use(self, version: int) -> Iterator[Any]:
        with self.pins.pin("s", version) as snapshot:
            yield snapshot


def test_a_pinned_version_stays_while_the_stream_moves() -> None:
    world = World()
    with world.pins.pin("s") as first:
        assert first.version == 1
    world.version = 5
    for _ in range(3):
        with world.use(1) as snapshot:
            assert snapshot is first
    assert world.held == [1]


def test_the_present_version_can_be_asked_for_without_a_plan() -> None:
    world = World()
    with world.use(1):
        world.version = 2
        with world.use(1):
            pass
    assert world.held == [1]


def test_unused_versions_are_let_go_and_never_replaced() -> None:
    world = World()
    with world.pins.pin("s"):
        pass
    world.version = 2
    world.now = 599
    with world.use(1):
        world.now = 5000  # a long read keeps its version
        world.pins.sweep()
        assert world.held == [1]
    world.now += 599
    with world.use(1):
        pass
    world.now += 601
    with pytest.raises(SnapshotExpired, match="now 2"), world.use(1):
        pass
    assert world.held == []
    assert len(world.pins) == 0


def test_versions_that_never_were_are_not_found() -> None:
    world = World()
    with pytest.raises(SnapshotExpired), world.use(99):
        pass
    assert world.held == []


def test_the_longest_unused_goes_first() -> None:
    world = World(most=2)
    for version in (1, 2, 3):
        world.version = version
        world.now += 1
        with world.pins.pin("s"):
            pass
    assert world.held == [2, 3]


def test_a_dropped_stream_keeps_only_what_is_read() -> None:
    world = World()
    with world.use(1):
        world.pins.forget("s")
        assert len(world.pins) == 0
        assert world.held == [1]
    assert world.held == []
