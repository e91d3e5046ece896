"""Settings of a stream: how it is encoded, cut, kept and made durable.

Purpose
    One validated value object, stored in the manifest.

Limits
    ``retention`` counts from the newest event of the stream, not from the wall clock: a clock that
    jumps must not delete data, and an archive of old events must not vanish the day it is loaded.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..errors import InvalidArgument
from ..schema import StreamSchema

__all__ = ["DURABILITIES", "StreamOptions", "retention_limits"]

CODECS = ("none", "lz4", "zstd")
DURABILITIES = ("commit", "interval", "none")
COMPACTIONS = ("background", "manual")
_TIME_UNITS = {
    "second": 1,
    "sec": 1,
    "s": 1,
    "minute": 60,
    "min": 60,
    "m": 60,
    "hour": 3600,
    "h": 3600,
    "day": 86_400,
    "d": 86_400,
    "week": 604_800,
    "w": 604_800,
    "month": 30 * 86_400,
    "year": 365 * 86_400,
}
_SIZE_UNITS = {"b": 1}
for _power, _prefix in enumerate("kmgtp", 1):
    _SIZE_UNITS[_prefix + "b"] = 1000**_power
    _SIZE_UNITS[_prefix + "ib"] = 1024**_power


@dataclass(frozen=True)
class StreamOptions:
    """Settings of a stream.

    Attributes
    ----------
    codec : str
        ``none``, ``lz4`` (default) or ``zstd``: compression of column pages.
    leaf_bytes : int
        Plain bytes of a full leaf.
    segment_bytes : int
        A segment is sealed when its file has grown to this.
    retention : str or None
        Age such as ``"30 days"``, a number of ticks for integer time, or a size such as ``"10
        GB"``: older sealed segments are dropped.
    durability : str
        What an append promises unless it says otherwise: ``commit``, ``interval`` or ``none``.
    interval_ms : int
        Time between syncs for ``interval``.
    late_events_max : int
        Late events buffered in memory before they are spilled as a late run.
    compaction : str
        ``background`` (default): late runs are folded in by a thread of the writer when they have
        become many and the stream is quiet, or too many; ``manual``: only when asked for.
    kept_bytes_max : int
        Replaced files may take as much space as the stream itself and so many bytes more; beyond
        that positions of followers are given up, the oldest first.
    """

    codec: str = "lz4"
    leaf_bytes: int = 1 << 20
    segment_bytes: int = 1 << 30
    retention: str | None = None
    durability: str = "commit"
    interval_ms: int = 100
    late_events_max: int = 131_072
    compaction: str = "background"
    kept_bytes_max: int = 1 << 30

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise InvalidArgument(f"codec must be one of {', '.join(CODECS)}, found {self.codec!r}")
        if self.durability not in DURABILITIES:
            raise InvalidArgument(
                f"durability must be one of {', '.join(DURABILITIES)}, found {self.durability!r}"
            )
        if self.compaction not in COMPACTIONS:
            raise InvalidArgument(
                f"compaction must be one of {', '.join(COMPACTIONS)}, found {self.compaction!r}"
            )
        for name, low, high in (
            ("leaf_bytes", 512, 1 << 28),
            ("segment_bytes", 4096, 1 << 42),
            ("interval_ms", 1, 3_600_000),
            ("late_events_max", 1, 1 << 30),
            ("kept_bytes_max", 0, 1 << 50),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise InvalidArgument(
                    f"{name} must be an integer from {low} to {high}, found {value!r}"
                )
        if self.retention is not None:
            _parse(self.retention)

    def to_json(self) -> dict[str, Any]:
        """A form for the manifest."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> StreamOptions:
        """Read what :meth:`to_json` wrote; settings of newer releases are ignored."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in document.items() if name in known})


def _parse(text: str) -> tuple[str, float]:
    """Split a retention into ("seconds" | "ticks" | "bytes", amount)."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", str(text))
    if match is None:
        raise InvalidArgument(
            f"retention must be an age such as '30 days' or a size such as '10 GB', found {text!r}"
        )
    amount, unit = float(match[1]), match[2].lower()
    if not unit:
        return "ticks", amount
    if unit in _SIZE_UNITS:
        return "bytes", amount * _SIZE_UNITS[unit]
    singular = unit[:-1] if unit.endswith("s") and len(unit) > 1 else unit
    if singular in _TIME_UNITS:
        return "seconds", amount * _TIME_UNITS[singular]
    raise InvalidArgument(
        f"unknown unit {match[2]!r} in the retention {text!r}; use seconds, minutes, hours, days, "
        "weeks, or KB, MB, GB, TB"
    )


def retention_limits(retention: str | None, schema: StreamSchema) -> tuple[int | None, int | None]:
    """A stream's retention as (ticks, bytes); None where it sets no limit.

    Raises
    ------
    InvalidArgument
        When an age is given in seconds or days for integer time, or in bare ticks for timestamps.
    """
    if retention is None:
        return None, None
    what, amount = _parse(retention)
    if what == "bytes":
        return None, int(amount)
    per_second = schema.ticks_per_second
    if what == "ticks":
        if per_second is not None:
            raise InvalidArgument(
                f"retention {retention!r} needs a unit such as 'days': time is a timestamp"
            )
        return int(amount), None
    if per_second is None:
        raise InvalidArgument(
            f"retention {retention!r} needs a plain number of ticks: time is an integer"
        )
    return int(amount * per_second), None
