"""Ticks: how many make a second, and the bounds of the 64 bits that hold them.

Times are ``int64`` counts of a unit since 1970-01-01 00:00 UTC (:mod:`chronicle.schema`), and so
are the bounds of every signed value that a stream stores.
"""

from __future__ import annotations

__all__ = ["INT64_MAX", "INT64_MIN", "NS_PER_SECOND", "NS_PER_TICK", "TICKS_PER_SECOND"]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
NS_PER_SECOND = 1_000_000_000
TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": NS_PER_SECOND}
NS_PER_TICK = {unit: NS_PER_SECOND // ticks for unit, ticks in TICKS_PER_SECOND.items()}
