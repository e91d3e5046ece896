"""Which backups there are at a place: when each was made, and what it holds.

Purpose
    Deletes do not reach backups: who has to name those that may still hold an event asks here.

Guarantee
    Nothing is opened for writing, no lease is taken, nothing is changed: the directory may be on a
    medium that cannot be written.  Every directory that a backup has made is told, also one that
    was cut short or cannot be read, with the reason.  What an event was deleted from before
    ``made_at`` does not hold it.

Limits
    Manifests and logs are read, blocks are not: ``chronicle check`` verifies a copy.  Hard links
    count with their full size, although a file that the store still has takes no further place.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ChronicleError, CorruptStore, InvalidArgument
from .catalog import directory_name
from .files import RealFiles
from .manifest import MANIFEST, read_manifest
from .recovery import load
from .store import MARK, UNFINISHED, Store

__all__ = ["COPIED_AT", "Backup", "described", "is_address", "list_backups"]

COPIED_AT = "copied_at"
"""Key of a copy's mark: when the backup began, written as :data:`MOMENT`."""
MOMENT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Backup:
    """A backup as its files tell it.

    Attributes
    ----------
    name : str
        Of its directory.
    made_at : str or None
        When it began, ISO 8601 in UTC; None as long as it is unfinished.
    state : str
        ``whole``; ``unfinished``: still being written, or cut short, and refused as a store;
        ``damaged``: see `problem`.
    events : int
    streams : dict of str to int
        Events of each stream.
    bytes : int
        Size of all files.
    """

    name: str
    made_at: str | None
    state: str
    events: int
    streams: dict[str, int]
    bytes: int
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def is_address(place: str | os.PathLike[str]) -> bool:
    """Whether a place is an address of objects, and not a path."""
    return "://" in os.fspath(place)


def list_backups(place: str | os.PathLike[str]) -> list[Backup]:
    """The backups at a place, the oldest first; unfinished ones last.

    Parameters
    ----------
    place : str or path-like
        A directory in which they lie, or an address of objects.

    Raises
    ------
    InvalidArgument
        When there is no such directory, or it cannot be read.
    StorageFailed
        When the place of the objects does not answer.
    """
    if is_address(place):
        from .object_backups import object_backups
        from .object_store import object_store

        return object_backups(object_store(os.fspath(place)))
    return _in_directory(place)


def _in_directory(directory: str | os.PathLike[str]) -> list[Backup]:
    try:
        with os.scandir(directory) as found:
            inside = sorted(each.name for each in found if each.is_dir(follow_symlinks=False))
    except OSError as error:
        raise InvalidArgument(
            f"backups are looked for in a directory; {os.fspath(directory)!r}: {error.strerror}"
        ) from error
    backups = [described(os.path.join(directory, name), name) for name in inside]
    told = [each for each in backups if each is not None]
    return sorted(told, key=lambda each: (each.made_at is None, each.made_at or "", each.name))


def described(path: str, name: str) -> Backup | None:
    """What a directory says of itself as a backup; None where it is something else."""
    files = RealFiles(path)
    streams: dict[str, int] = {}
    made_at, state, problem = None, "whole", None
    try:
        if files.exists(UNFINISHED):
            state = "unfinished"
        elif files.exists(f"{MARK}/{MANIFEST}"):
            made_at = _made_at(files)
            with Store.open(path, "r") as copy:
                names = copy.streams()
            for stream in names:
                found = load(files, f"streams/{directory_name(stream)}")
                streams[stream] = found.manifest.stored_events + found.journal.rows
        else:
            return None
    except (ChronicleError, OSError) as error:
        state, problem = "damaged", str(error)
    size = _size(path)
    return Backup(name, made_at, state, sum(streams.values()), streams, size, problem)


def _made_at(files: RealFiles) -> str:
    body = read_manifest(files, MARK)
    if body is None:
        raise CorruptStore(f"{files.root}/{MARK} does not say what store this is")
    if isinstance(body.get(COPIED_AT), str):
        return str(body[COPIED_AT])
    # of a release that did not note it, or a store that was put here by other means
    written = os.stat(os.path.join(files.root, MARK, MANIFEST)).st_mtime
    return time.strftime(MOMENT, time.gmtime(written))


def _size(path: str) -> int:
    """Bytes of all files below a directory; what goes away meanwhile has none."""
    total = 0
    for root, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except OSError:
                continue
    return total
