"""Options of a stream: encoding, segment size, retention and durability.

Ages count from the newest event, not from the wall clock, which may jump, and would drop archives.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ..core.times import INT64_MAX
from ..errors import InvalidArgument
from ..schema import StreamSchema, Uniqueness, key_names, resolved

CODECS = ("none", "lz4", "zstd")
SEALED_BYTES_MIN = 64 << 10
MOVED_BYTES_MIN = 8 << 20
DURABILITIES = ("commit", "interval", "none")
COMPACTIONS = ("background", "manual")
_TIME_UNITS = {
    "second": 1, "sec": 1, "s": 1,
    "minute": 60, "min": 60, "m": 60,
    "hour": 3600, "h": 3600,
    "day": 86_400, "d": 86_400,
    "week": 604_800, "w": 604_800,
    "month": 30 * 86_400,
    "year": 365 * 86_400,
}  # fmt: skip
_SIZE_UNITS = {"b": 1}
for _power, _prefix in enumerate("kmgtp", 1):
    _SIZE_UNITS[_prefix + "b"] = 1000**_power
    _SIZE_UNITS[_prefix + "ib"] = 1024**_power


@dataclass(frozen=True)
class StreamOptions:
    """Options of a stream.  Ages such as ``"30 days"`` are ticks for integer time; sizes are ``"10
    GB"``.

    ``codec``: compression of column pages: ``none``, ``lz4`` or ``zstd``.
    ``leaf_bytes``: plain bytes of a full leaf.
    ``segment_bytes``: file size at which a segment is sealed.
    ``retention``: age or size: older events are hidden, to within a leaf, and segments dropped.
    ``durability``: default of appends: ``commit``, ``interval`` (``interval_ms``) or ``none``.
    ``late_events_max``: late events buffered before they are spilled as a late run.
    ``compaction``: of late runs: ``background``, when the stream is quiet, or ``manual``.
    ``kept_bytes_max``: space for replaced files beyond the stream's size; beyond it the oldest
        follower positions are dropped.
    ``unique``, ``within``: key columns, and the maximum time between duplicates (``duplicates``).
    ``move_after``: age from which sealed segments move to objects (``moving``).
    ``keep_local_bytes``: size above which the oldest segments move to objects.
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
    unique: str | Sequence[str] | None = None
    within: str | None = None
    move_after: str | None = None
    keep_local_bytes: str | int | None = None

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
        if self.move_after is not None:
            object.__setattr__(self, "move_after", str(self.move_after))
            if _parse(str(self.move_after), "move_after")[0] == "bytes":
                raise InvalidArgument(
                    f"move_after is an age such as '90 days', found the size {self.move_after!r}; "
                    "keep_local_bytes is a size"
                )
        _ = self.local_bytes
        if (self.unique is None) != (self.within is None):
            raise InvalidArgument(
                "unique and within go together: unique = 'device, seq', within = '1 hour'; found "
                f"unique {self.unique!r} and within {self.within!r}"
            )
        if self.unique is not None and self.within is not None:
            object.__setattr__(self, "unique", key_names(self.unique))
            object.__setattr__(self, "within", str(self.within))
            if _parse(self.within, "within")[0] == "bytes":
                raise InvalidArgument(f"within is a span of time, found the size {self.within!r}")

    @property
    def local_bytes(self) -> int | None:
        if self.keep_local_bytes is None:
            return None
        what, amount = _parse(str(self.keep_local_bytes), "keep_local_bytes")
        if what == "seconds" or isinstance(self.keep_local_bytes, bool):
            raise InvalidArgument(
                f"keep_local_bytes is a size such as '50 GB', found {self.keep_local_bytes!r}; "
                "move_after is an age"
            )
        return int(amount)

    @property
    def moved_bytes_min(self) -> int:
        """Minimum size of a segment that is sealed in order to be moved."""
        return min(MOVED_BYTES_MIN, self.segment_bytes)

    @property
    def sealed_bytes(self) -> int:
        """File size at which a segment is sealed: at most 1/8 of a size limit."""
        limit, local = self.segment_bytes, self.local_bytes
        if local is not None:
            limit = min(limit, max(self.moved_bytes_min, local // 8))
        what, amount = ("ticks", 0.0) if self.retention is None else _parse(self.retention)
        if what == "bytes":
            limit = min(limit, max(SEALED_BYTES_MIN, int(amount) // 8))
        return limit

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> StreamOptions:
        """Inverse of ``to_json``; ignores options of newer releases."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in document.items() if name in names})


def _parse(text: str, setting: str = "retention") -> tuple[str, float]:
    """Split a setting into ("seconds" | "ticks" | "bytes", amount)."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", str(text))
    if match is None:
        raise InvalidArgument(f"{setting} must be {_EXPECTED[setting]}, found {text!r}")
    amount, unit = float(match[1]), match[2].lower()
    if not unit:
        return "ticks", amount
    if unit in _SIZE_UNITS:
        return "bytes", amount * _SIZE_UNITS[unit]
    singular = unit[:-1] if unit.endswith("s") and len(unit) > 1 else unit
    if singular in _TIME_UNITS:
        return "seconds", amount * _TIME_UNITS[singular]
    sizes = ", or KB, MB, GB, TB" if setting == "retention" else ""
    units = f"seconds, minutes, hours, days, weeks{sizes}"
    if setting == "keep_local_bytes":
        units = "KB, MB, GB, TB"
    raise InvalidArgument(f"unknown unit {match[2]!r} in the {setting} {text!r}; use {units}")


_EXPECTED = {
    "retention": "an age such as '30 days' or a size such as '10 GB'",
    "within": "an age such as '30 days'",
    "move_after": "an age such as '90 days'",
    "keep_local_bytes": "a size such as '50 GB'",
}


def retention_limits(retention: str | None, schema: StreamSchema) -> tuple[int | None, int | None]:
    """A stream's retention as (ticks, bytes); ``InvalidArgument`` for a wrong unit."""
    if retention is None:
        return None, None
    if _parse(retention)[0] == "bytes":
        return None, int(_parse(retention)[1])
    return _ticks(retention, "retention", schema), None


def moving_ticks(options: StreamOptions, schema: StreamSchema) -> int | None:
    """``move_after`` in ticks; ``InvalidArgument`` when it does not fit the time column."""
    if options.move_after is None:
        return None
    return _ticks(options.move_after, "move_after", schema)


def _ticks(age: str, setting: str, schema: StreamSchema) -> int:
    what, amount = _parse(age, setting)
    per_second = schema.ticks_per_second
    if what == "ticks":
        if per_second is not None:
            raise InvalidArgument(
                f"{setting} {age!r} needs a unit such as 'days': time is a timestamp"
            )
        return int(amount)
    if per_second is None:
        raise InvalidArgument(
            f"{setting} {age!r} needs a plain number of ticks: time is an integer"
        )
    return int(amount * per_second)


def uniqueness(options: StreamOptions, schema: StreamSchema) -> Uniqueness | None:
    """The deduplication rule, if any; ``AttributeNotFound`` or ``InvalidArgument`` if invalid."""
    if options.unique is None or options.within is None:
        return None
    ticks = min(_ticks(options.within, "within", schema), INT64_MAX)
    return Uniqueness(resolved(key_names(options.unique), schema), ticks)


def settled(options: StreamOptions, schema: StreamSchema) -> StreamOptions:
    """Validated options for a schema, with its column names."""
    retention_limits(options.retention, schema)
    moving_ticks(options, schema)
    rule = uniqueness(options, schema)
    return options if rule is None else replace(options, unique=rule.columns)
