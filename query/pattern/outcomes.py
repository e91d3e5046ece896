"""Status codes and state entries that search kernels and their caller share; compiled in."""

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
# Entries of the state array; LABELS: labelled rows in the output
GROUP, MATCHES, RUNS, ERROR_ROW, STEPS, ERROR_DEPTH, LABELS = range(7)
# Result of an attempt
FAIL, MATCH, MORE = range(3)
# AFTER MATCH SKIP
PAST_LAST, TO_NEXT, TO_FIRST, TO_LAST = range(4)


def overflow(text: str, where: str) -> SqlError:
    """The error for ``OVERFLOW``; ``where``: the event."""
    return SqlError(
        f"a condition of pattern {text} overflows its integers or divides by zero {where}"
    )
