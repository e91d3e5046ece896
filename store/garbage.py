"""Garbage collection of replaced files that no lease can name; failures are retried later.

When the rest exceeds its space, follower positions are dropped, oldest first; never running readers
and planned reads.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from .catalog import number_of
from .file_contract import Files
from .lock import held_leases
from .pin_files import drop_pin, stored_leases
from .segment_list import COUNTER_MASK

logger = logging.getLogger("chronicle.store")

Garbage = tuple[tuple[str, int], ...]
"""File names, each with the first manifest version that does not name it."""


def collect(files: Files, directory: str, garbage: Garbage, room: int) -> tuple[Garbage, int]:
    """Remove files that no reader needs; returns the rest, up to ``room`` bytes, and dropped
    positions.
    """
    garbage, dropped = _unwanted_removed(files, directory, garbage), 0
    if sum(sizes(files, directory, garbage)) <= room:
        return garbage, dropped
    for lease, name in stored_leases(files, directory):
        if not any(lease.wants(_counter(file), version) for file, version in garbage):
            continue
        drop_pin(files, directory, name)
        dropped += 1
        logger.warning(
            "%s: the position %s of a follower is given up: replaced files took more than the %d "
            "bytes that kept_bytes_max leaves them",
            directory, name, room,
        )  # fmt: skip
        garbage = _unwanted_removed(files, directory, garbage)
        if sum(sizes(files, directory, garbage)) <= room:
            break
    return garbage, dropped


def _unwanted_removed(files: Files, directory: str, garbage: Garbage) -> Garbage:
    if not garbage:
        return ()
    try:
        leases = held_leases(files, directory)
    except OSError as error:
        logger.warning("%s: cannot look for readers: %s", directory, error)
        return garbage
    return tuple(
        (file, version)
        for file, version in garbage
        if any(lease.wants(_counter(file), version) for lease in leases)
        or not remove_quietly(files, directory, file)
    )


def _counter(file: str) -> int:
    """Counter of a stream's own segment; 0 for files that every earlier version may need."""
    if not file.endswith(".seg"):
        return 0
    number = number_of(file)
    return number if number <= COUNTER_MASK else 0


def sizes(files: Files, directory: str, garbage: Garbage) -> list[int]:
    found = []
    for file, _ in garbage:
        with suppress(FileNotFoundError):  # removed since the manifest was written
            found.append(files.size(f"{directory}/{file}"))
    return found


def remove_quietly(files: Files, directory: str, file: str) -> bool:
    """Remove a file that nothing names; failures are logged, the next opening retries."""
    try:
        files.remove(f"{directory}/{file}")
    except FileNotFoundError:
        return True
    except OSError as error:
        logger.warning("%s: %s", directory, error)
        return False
    return True
