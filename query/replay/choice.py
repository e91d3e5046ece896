"""The choice of terms of a pattern, as a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cost import Estimate

if TYPE_CHECKING:
    from .offers import Offer

__all__ = ["TermChoice"]


@dataclass(frozen=True)
class TermChoice:
    """What is looked up, and why.

    Attributes
    ----------
    offers : tuple of Offer
        Terms that could be looked up.
    picked : tuple of Offer or None
        Those that are; none of them: the coarse pattern map alone.  None: no interval is looked
        for, the whole stream is replayed.
    reason : str
        Why the whole stream is replayed, or would have been but for a probe.
    probe : bool
        Whether what is picked is looked up only to see whether intervals pay.
    counts : tuple of int
        Terms picked of each block, when the cost model has chosen them.
    estimate_uniform : callable, optional
        What the cost model would say of the same terms without the coarse pattern map, as if values
        did not change with time (for the comparison of thesis Figure 3.14).
    examined : int
        Choices of terms that were looked at.
    agreeing : tuple of str
        Conditions between events, with the part of all pairs for which they are expected to hold.
    """

    offers: tuple[Offer, ...] = ()
    picked: tuple[Offer, ...] | None = ()
    reason: str = ""
    probe: bool = False
    counts: tuple[int, ...] = ()
    estimate: Estimate | None = None
    estimate_uniform: Callable[[], Estimate] | None = None
    examined: int = 0
    agreeing: tuple[str, ...] = ()
