"""Losses of a repair, for its report."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Loss"]


@dataclass(frozen=True)
class Loss:
    """Events lost of a damaged file (now ``quarantined``, None if missing), in inclusive tick
    ranges.
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
