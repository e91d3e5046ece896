"""What a repair could not save of one file, for its report."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Loss"]


@dataclass(frozen=True)
class Loss:
    """What a repair could not save of one file.

    Attributes
    ----------
    file : str
        The damaged file, relative to the store.
    quarantined : str or None
        Where it is now; None when it was missing.
    kept, lost : int
        Events saved, and events gone.
    ranges : tuple of (int, int)
        Time ranges in ticks, both inclusive, in which the lost events lay.
    """

    stream: str
    file: str
    quarantined: str | None
    kept: int
    lost: int
    ranges: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        where = ", ".join(f"{first} to {last}" for first, last in self.ranges)
        between = f" between the ticks {where}" if where else ""
        moved = f"; moved to {self.quarantined}" if self.quarantined else ""
        return (
            f"{self.stream}: {self.file}: {self.lost:,} events lost{between}, {self.kept:,} "
            f"saved{moved}"
        )
