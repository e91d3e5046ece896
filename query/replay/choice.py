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
    """The ``offers`` and those ``picked``: empty for the coarse map alone, None for a full replay.
    ``reason``: why the whole stream is replayed, or would be without the probe; ``probe``: the
    picked terms are looked up only to see whether intervals pay; ``counts``: terms per block chosen
    by the cost model; ``estimate_uniform``: the estimate as if values did not drift (thesis Figure
    3.14); ``examined``: choices compared; ``agreeing``: bands and the fraction of pairs expected to
    fit.
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
