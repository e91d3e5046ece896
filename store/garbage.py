"""Garbage: files that a commit has replaced, kept as long as a reader may want them.

Guarantee
    A file goes only when no lease can name it (:meth:`chronicle.store.lock.Lease.wants`).  What
    cannot be removed, or told, is tried again at the next commit or opening.

Limits
    Where what is kept takes more than its room, positions of followers are given up, the oldest
    first.  Readers that are at work, and reads that are planned, are never cut off.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from .catalog import COUNTER_MASK, number_of
from .file_contract import Files
from .lock import held_leases
from .pin_files import drop_pin, kept_leases

__all__ = ["Garbage", "collect", "remove_quietly", "sizes"]

logger = logging.getLogger("chronicle.store")

Garbage = tuple[tuple[str, int], ...]
"""Names of files, and the version of the manifest that no longer names each."""


def collect(files: Files, directory: str, garbage: Garbage, room: int) -> tuple[Garbage, int]:
    """Remove what no reader can want; give back the others, and how many positions were given up.

    Parameters
    ----------
    directory : str
        Of the stream.
    garbage : tuple of (str, int)
    room : int
        Bytes that the others may take.
    """
    garbage, dropped = _unwanted_removed(files, directory, garbage), 0
    if sum(sizes(files, directory, garbage)) <= room:
        return garbage, dropped
    for lease, name in kept_leases(files, directory):
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
    """Place of a segment among those that its stream began; 0 for those of bulk loads, and others.

    What others there are says what a commit has changed: every earlier version may want it.
    """
    if not file.endswith(".seg"):
        return 0
    number = number_of(file)
    return number if number <= COUNTER_MASK else 0


def sizes(files: Files, directory: str, garbage: Garbage) -> list[int]:
    """Bytes of each file that is still there."""
    found = []
    for file, _ in garbage:
        with suppress(FileNotFoundError):  # removed since the manifest was written
            found.append(files.size(f"{directory}/{file}"))
    return found


def remove_quietly(files: Files, directory: str, file: str) -> bool:
    """Remove a file that nothing names; what fails is tried again at the next opening."""
    try:
        files.remove(f"{directory}/{file}")
    except FileNotFoundError:
        return True
    except OSError as error:
        logger.warning("%s: %s", directory, error)
        return False
    return True
