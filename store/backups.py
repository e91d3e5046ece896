"""The backups at a place: when each was made and what it holds; read-only, without a lease.

Deletes do not reach backups; a backup holds no event that was deleted before ``made_at``.  Reads
manifests and logs, not blocks.  Hard links count with their full size.
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
"""Key in a copy's mark: when the backup began, formatted as ``MOMENT`` (UTC)."""
MOMENT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Backup:
    """A backup: ``made_at`` is its beginning, ISO 8601 in UTC, None while unfinished; ``state`` is
    ``whole``, ``unfinished`` (refused as a store) or ``damaged`` (see ``problem``); ``streams``
    counts events.
    """

    name: str
    made_at: str | None
    state: str
    events: int
    streams: dict[str, int]
    bytes: int
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def is_address(place: str | os.PathLike[str]) -> bool:
    return "://" in os.fspath(place)


def list_backups(place: str | os.PathLike[str]) -> list[Backup]:
    """The backups in a directory or at an address of objects, oldest first, unfinished last."""
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
    """The backup in a directory; None where it holds something else."""
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
    # written by an old release, or a store copied here by other means
    written = os.stat(os.path.join(files.root, MARK, MANIFEST)).st_mtime
    return time.strftime(MOMENT, time.gmtime(written))


def _size(path: str) -> int:
    total = 0
    for root, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except OSError:
                continue
    return total
