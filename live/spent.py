"""Counts and durations, for metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Spent:
    """Number of calls and their wall time; not thread-safe."""

    times: int = 0
    seconds: float = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.count(begun)

    def count(self, begun: float) -> None:
        self.times += 1
        self.seconds += time.perf_counter() - begun


def figures(stepping: Spent, reconciling: Spent, hits: int | None) -> dict[str, float]:
    found: dict[str, float] = {
        "steps": stepping.times, "step_seconds": stepping.seconds,
        "reconciles": reconciling.times, "reconcile_seconds": reconciling.seconds,
    }  # fmt: skip
    return found if hits is None else {**found, "hits": hits}


def together(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}
