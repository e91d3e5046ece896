"""Plan nodes."""

from __future__ import annotations

from dataclasses import dataclass

from ...store.prune import Prune

__all__ = ["ScanSpec"]


@dataclass(frozen=True)
class ScanSpec:
    """What the conditions of a query say about the scan of one stream.

    Attributes
    ----------
    low, high : int
        Ticks, both inclusive; empty when low > high.
    prune : Prune or None
        Without the range of time.
    exact : bool
        Whether the range alone decides which events pass: nothing else is asked of them.
    """

    low: int
    high: int
    prune: Prune | None
    exact: bool
