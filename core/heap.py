"""The C library's heap: memory of freed arrays stays for the next query.

glibc gives a freed array of 128 KiB or more back to the system, and with it what is free at the
heap's end, until the process has freed a larger one: these limits grow with what is freed, to 32
and 64 MiB (mallopt(3), "dynamic mmap threshold").  Below them each batch of a query fetches its
memory again, page by page: a seventh of a replay's processor time.

Limits
    A process holds at most 64 MiB at the heap's end that nobody uses.  Limits that the user set
    (``GLIBC_TUNABLES``, ``MALLOC_TRIM_THRESHOLD_``) and other allocators stay as they are.
"""

from __future__ import annotations

import numpy as np

_LARGEST = (32 << 20) - (64 << 10)
"""Bytes of the largest block whose release raises the limits, less the block's own words."""


def keep_freed_memory() -> None:
    """Raise the limits to their maximum; takes 10 µs and touches no page."""
    np.empty(_LARGEST, np.uint8)
