"""Comparisons with a rounded sum or product, in terms of a derived value that is rounded, too.

An index on ``x - PREV(x)`` holds a rounded difference, ``x > PREV(x) + 0.1`` compares with a
rounded sum; likewise ``x / PREV(x)`` and ``x > PREV(x) * 1.1``.  With ``p`` the other value, ``c``
the constant, and ``~`` for "rounded to the nearest double"::

    x >  ~(p + c)    then  x > p + c,  for x itself is a double and rounding keeps order
                     so    x - p > c,  and  ~(x - p) >= c
    x >= ~(p + c)    the sum may have been rounded down to x:  x - p >= c - |p + c| / 2^53
                     so    ~(x - p) >= c - |c| / 2^16     while |x| and |p| are at most 2^35 |c|
    x >= ~(p * c)    so    ~(x / p) >= c (1 - 2^-48)      while p and c are positive, not tiny

Sound to the last bit, given the side conditions (``Bounded``), which the planner checks against
minimum and maximum.  Constants may be off by some units in the last place.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bounded", "product_range", "sum_range"]

_CONSTANT = 2.0**-48
"""Relative error of a constant and of one rounding, with a margin."""
_SLACK = 2.0**-16
_REACH = 2.0**35
_TINY, _HUGE = 2.0**-400, 2.0**400
_LEAST = 2.0**-500

_BELOW, _ABOVE = ("<", "<="), (">", ">=")


@dataclass(frozen=True)
class Bounded:
    """The condition that all numbers of a column lie in [low, high], except NaN and infinity."""

    column: str
    low: float
    high: float


_Found = tuple["float | None", "float | None", tuple[Bounded, ...]]


def sum_range(how: str, constant: float, columns: tuple[str, ...]) -> _Found | None:
    """Inclusive range of ``~(x - p)`` where ``x how ~(p + constant)``, and its needs, or None."""
    size = abs(constant)
    needs: tuple[Bounded, ...] = ()
    slack = _CONSTANT * size
    if size and not _TINY <= size <= _HUGE:
        return None
    if size and how not in ("<", ">"):
        slack = _SLACK * size
        reach = _REACH * size
        needs = tuple(Bounded(name, -reach, reach) for name in dict.fromkeys(columns))
    return _bounds(how, constant - slack, constant + slack, needs)


def product_range(how: str, constant: float, columns: tuple[str, ...]) -> _Found | None:
    """Range of ``~(x / p)`` where ``x how ~(p * constant)``, and its needs, or None."""
    if not _TINY <= constant <= _HUGE:
        return None
    needs = tuple(Bounded(name, _LEAST, float("inf")) for name in dict.fromkeys(columns))
    slack = _CONSTANT * constant
    return _bounds(how, constant - slack, constant + slack, needs)


def _bounds(how: str, low: float, high: float, needs: tuple[Bounded, ...]) -> _Found | None:
    if how in _ABOVE:
        return low, None, needs
    if how in _BELOW:
        return None, high, needs
    return (low, high, needs) if how == "=" else None
