"""Time spent: how often something was done, and how long that took in all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Spent"]


@dataclass
class Spent:
    """Wall clock; one thread at a time counts.

    Attributes
    ----------
    times : int
    seconds : float
    """

    times: int = 0
    seconds: float = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count a block that ends without an error."""
        begun = time.perf_counter()
        yield
        self.times += 1
        self.seconds += time.perf_counter() - begun
