"""How many random cases a test tries: a few in every run, more in the long one, many by night.

``CHRONICLE_HYPOTHESIS`` says which: nothing, ``long`` (``make test-all``) or ``nightly``.  With
nothing they are the same cases each time, so that what CI says of a change is about the change.
"""

from __future__ import annotations

import os

__all__ = ["LONG", "NIGHTLY", "rounds"]

_SIZE = os.environ.get("CHRONICLE_HYPOTHESIS", "")
NIGHTLY = _SIZE == "nightly"
LONG = NIGHTLY or _SIZE == "long"


def rounds(short: int, long: int, nightly: int | None = None) -> int:
    """The number that this run asks for."""
    if NIGHTLY and nightly is not None:
        return nightly
    return long if LONG else short
