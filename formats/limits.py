"""Resource limits of one source: columns, nesting, decoded bytes.

The decoders' own memory is bounded by that of their process (``isolated.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ResourceLimit

DEPTH_MAX = 64
"""Most brackets open at once in a JSON record; decoders are recursive."""


@dataclass(frozen=True)
class Limits:
    """Limits of one source; None is unlimited.

    ``columns`` also bounds distinct JSON keys; ``piece_bytes`` a decoded dictionary or list column;
    ``unpacked_bytes`` a ZIP archive; ``total_bytes`` all events, if held in memory together.
    """

    columns: int = 10_000
    piece_bytes: int = 1 << 30
    unpacked_bytes: int | None = None
    total_bytes: int | None = None


class Meter:
    """What one source has used of its limits."""

    def __init__(self, limits: Limits, source: str) -> None:
        self.limits = limits
        self._source = source
        self._held = 0

    def columns(self, count: int, what: str = "columns") -> None:
        if count > self.limits.columns:
            raise ResourceLimit(
                f"{self._source}: {count:,} {what}, and at most {self.limits.columns:,} are read; "
                "split it, or raise the limit of columns"
            )

    def piece(self, size: int, what: str) -> None:
        most = self.limits.piece_bytes
        if self.limits.total_bytes is not None:
            most = min(most, self.limits.total_bytes)
        if size > most:
            raise ResourceLimit(
                f"{self._source}: {what} unpacks to {size:,} bytes, and at most {most:,} are taken "
                "at once; write it in smaller pieces"
            )

    def hold(self, size: int) -> None:
        self._held += size
        self.expect(self._held)

    def expect(self, size: int) -> None:
        most = self.limits.total_bytes
        if most is not None and size > most:
            raise ResourceLimit(
                f"{self._source}: its events take more than {most:,} bytes once decoded; send "
                "them in parts"
            )
