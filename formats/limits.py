"""What one source may cost at most: columns, nesting, and bytes once decoded.

Purpose
    A small source can describe a large table: a page of Parquet that unpacks to 2 GB, a dictionary
    whose one long entry a million rows name, a million different keys.  :class:`Limits` says how
    much is read, :class:`Meter` counts what one source has taken.

Guarantee
    What a source declares is held against the limits before memory is taken for it, and what comes
    out is counted whatever was declared.  An excess is a :class:`~chronicle.errors.ResourceLimit`
    that names the limit.

Limits
    These are limits of what is decoded, not of the process: decoders need some memory of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ResourceLimit

__all__ = ["DEPTH_MAX", "Limits", "Meter"]

DEPTH_MAX = 64
"""Brackets that may be open at once in a JSON record: decoders recurse, and a stack ends."""


@dataclass(frozen=True)
class Limits:
    """Limits of one source.

    Attributes
    ----------
    columns : int
        Columns of a table, keys of all JSON records together (those of nested objects included).
    piece_bytes : int
        Bytes that are decoded at once: a record batch, a page, the strings that a slice of
        dictionary indices stands for.
    unpacked_bytes : int, optional
        Bytes that a ZIP archive may unpack to.
    total_bytes : int, optional
        Bytes of all events together, where they are held in memory; None where they pass through.
    """

    columns: int = 10_000
    piece_bytes: int = 1 << 30
    unpacked_bytes: int | None = None
    total_bytes: int | None = None


class Meter:
    """What one source has taken of its limits.

    Parameters
    ----------
    source : str
        Name, for messages.
    """

    def __init__(self, limits: Limits, source: str) -> None:
        self.limits = limits
        self._source = source
        self._held = 0

    def columns(self, count: int, what: str = "columns") -> None:
        """Refuse more columns than the limit."""
        if count > self.limits.columns:
            raise ResourceLimit(
                f"{self._source}: {count:,} {what}, and at most {self.limits.columns:,} are read; "
                "split it, or raise the limit of columns"
            )

    def piece(self, size: int, what: str) -> None:
        """Refuse to decode so much at once."""
        most = self.limits.piece_bytes
        if self.limits.total_bytes is not None:
            most = min(most, self.limits.total_bytes)
        if size > most:
            raise ResourceLimit(
                f"{self._source}: {what} unpacks to {size:,} bytes, and at most {most:,} are taken "
                "at once; write it in smaller pieces"
            )

    def hold(self, size: int) -> None:
        """Count bytes of events that came out."""
        self._held += size
        self.expect(self._held)

    def expect(self, size: int) -> None:
        """Refuse a source whose events will take so many bytes in all."""
        most = self.limits.total_bytes
        if most is not None and size > most:
            raise ResourceLimit(
                f"{self._source}: its events take more than {most:,} bytes once decoded; send "
                "them in parts"
            )
