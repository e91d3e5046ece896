"""What the machines and their caller tell each other by number.

Purpose
    The kernels of :mod:`.contiguous`, :mod:`.jumping` and :mod:`.selection` are called over and
    over until a buffer is searched.  These numbers say why a call returned, what the array
    ``state`` holds between calls, and where a search goes on after a match.

Limits
    Kernels have these numbers compiled in: they name this module as one that they depend on.
"""

from __future__ import annotations

from ...errors import SqlError

__all__ = [
    "BUDGET",
    "DONE",
    "ERROR_DEPTH",
    "ERROR_ROW",
    "FAIL",
    "GROUP",
    "LABELS",
    "MATCH",
    "MATCHES",
    "MORE",
    "OUTPUT_FULL",
    "OVERFLOW",
    "PAST_LAST",
    "PATH_FULL",
    "RUNS",
    "SKIP_MISSING",
    "SKIP_STUCK",
    "SLICE",
    "STACKS_FULL",
    "STEPS",
    "TO_FIRST",
    "TO_LAST",
    "TO_NEXT",
    "overflow",
]

# Status of a call
(
    DONE, OUTPUT_FULL, PATH_FULL, BUDGET, SLICE, OVERFLOW, SKIP_MISSING, SKIP_STUCK, STACKS_FULL,
) = range(9)  # fmt: skip
# Entries of the state array; labels: matched rows of all matches that wait to be taken
GROUP, MATCHES, RUNS, ERROR_ROW, STEPS, ERROR_DEPTH, LABELS = range(7)
# What happens with the result of an attempt
FAIL, MATCH, MORE = range(3)
# AFTER MATCH SKIP
PAST_LAST, TO_NEXT, TO_FIRST, TO_LAST = range(4)


def overflow(text: str, where: str) -> SqlError:
    """What :data:`OVERFLOW` means to the user; ``where``: the event."""
    return SqlError(
        f"a condition of pattern {text} overflows its integers or divides by zero {where}"
    )
