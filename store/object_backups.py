"""Listings of backups in objects: reading, verifying and removing backups::

    <address>/backups/monday.backup        its listing of files
    <address>/backups/tuesday.unfinished   one in progress, or interrupted
    <address>/bytes/<digest>-<size>        a file's bytes, shared between backups

A listing is a line ``CHRONICLE-BACKUP 1 <XXH3-64 of the rest>`` and JSON: when it began, events of
each stream, directories with permissions, files with permissions, size and the digest (XXH3-128)
that names their bytes.  Paths outside of a store are refused.

Nothing is removed while there is an unfinished backup, which may need the bytes.  The operator must
not run a removal and a backup at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TypeVar

import xxhash

from ..core.threads import Check, Done, Task, in_order
from ..errors import CorruptStore, InvalidArgument, UnsupportedFormat
from .backups import Backup
from .object_store import ObjectStore
from .progress import each

__all__ = [
    "BYTES",
    "LISTINGS",
    "MAKING",
    "PIECE_BYTES",
    "WHOLE",
    "BackupFile",
    "Listing",
    "all_of",
    "holds_backups",
    "object_backups",
    "problem_of",
    "remove_backup",
    "verify_backup",
]

LISTINGS, BYTES = "backups/", "bytes/"
WHOLE, MAKING = ".backup", ".unfinished"
MAGIC, VERSION = b"CHRONICLE-BACKUP", 1
PIECE_BYTES = 4 << 20
THREADS = 8
"""Parallel transfers: most files are small and dominated by latency."""

Found = TypeVar("Found")


def all_of(tasks: Sequence[Task[Found]]) -> list[Found]:
    """Results of tasks that run in parallel, with progress reports."""
    done = in_order(tasks, THREADS, None)
    return [next(done) for _ in each(tasks)]


@dataclass(frozen=True)
class BackupFile:
    """A file of a backup; ``mode`` are its permissions, None for the default ones."""

    path: str
    mode: int | None
    size: int
    digest: str

    @property
    def key(self) -> str:
        return f"{BYTES}{self.digest}-{self.size}"


@dataclass(frozen=True)
class Listing:
    """Content of a backup; ``directories`` are paths and permissions, parents first."""

    made_at: str
    streams: dict[str, int]
    directories: list[tuple[str, int]]
    files: list[BackupFile]

    def to_bytes(self) -> bytes:
        body = json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()
        return b"%s %d %s\n%s" % (MAGIC, VERSION, xxhash.xxh3_64_hexdigest(body).encode(), body)

    @classmethod
    def read(cls, objects: ObjectStore, name: str) -> Listing:
        """The listing of a whole backup; ``InvalidArgument`` if missing, else if unreadable."""
        key = f"{LISTINGS}{name}{WHOLE}"
        size = objects.size(key)
        if size is None:
            known = ", ".join(backup.name for backup in object_backups(objects)) or "none"
            raise InvalidArgument(f"there is no backup {name!r} at {objects.url}, but {known}")
        head, _, body = objects.read(key, 0, size).partition(b"\n")
        magic, version, digest = (*head.split(b" "), b"", b"", b"")[:3]
        what = objects.describe(key)
        if magic != MAGIC or not version.isdigit():
            raise CorruptStore(f"{what} is not the listing of a backup")
        if int(version) > VERSION:
            raise UnsupportedFormat(
                f"{what} has format version {int(version)}, this Chronicle reads up to {VERSION}: "
                "use the release that wrote it, or a newer one"
            )
        if xxhash.xxh3_64_hexdigest(body).encode() != digest:
            raise CorruptStore(f"{what} is damaged: it does not fit its checksum")
        try:
            told = json.loads(body)
            directories = [(str(path), int(mode)) for path, mode in told["directories"]]
            files = [BackupFile(**file) for file in told["files"]]
            made_at, streams = str(told["made_at"]), dict(told["streams"])
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptStore(f"{what} is not the listing of a backup ({error})") from error
        for path in (*(path for path, _ in directories), *(file.path for file in files)):
            if path.startswith("/") or not set(path.split("/")).isdisjoint(("", ".", "..")):
                raise CorruptStore(f"{what} names {path!r}, which is no file of a store")
        return cls(made_at, streams, directories, files)

    @property
    def bytes(self) -> int:
        """Size of all files, including those shared with other backups."""
        return sum(file.size for file in self.files)


def holds_backups(objects: ObjectStore) -> bool:
    return bool(objects.list(LISTINGS))


def object_backups(objects: ObjectStore) -> list[Backup]:
    """The backups below an address, oldest first; unfinished ones last."""
    keys = [key.removeprefix(LISTINGS) for key in objects.list(LISTINGS)]
    whole = {key.removesuffix(WHOLE) for key in keys if key.endswith(WHOLE)}
    found = []
    for name in sorted(whole):
        try:
            listing = Listing.read(objects, name)
        except CorruptStore as error:
            found.append(Backup(name, None, "damaged", 0, {}, 0, str(error)))
            continue
        events = sum(listing.streams.values())
        found.append(Backup(name, listing.made_at, "whole", events, listing.streams, listing.bytes))
    begun = {key.removesuffix(MAKING) for key in keys if key.endswith(MAKING)}
    found += [Backup(name, None, "unfinished", 0, {}, 0) for name in sorted(begun - whole)]
    return sorted(found, key=lambda each: (each.made_at is None, each.made_at or "", each.name))


def remove_backup(objects: ObjectStore, name: str) -> int:
    """Remove a backup and the objects that only it uses; returns their number.  Refused if another
    backup is unfinished, or its listing unreadable.
    """
    found = {backup.name: backup for backup in object_backups(objects)}
    if name not in found:
        known = ", ".join(found) or "none"
        raise InvalidArgument(f"there is no backup {name!r} at {objects.url}, but {known}")
    others = [backup for backup in found.values() if backup.name != name]
    for other in others:
        if other.state == "unfinished":
            raise InvalidArgument(
                f"the backup {other.name!r} at {objects.url} is being made, or was cut short: wait "
                "for it, make it anew under its name, or remove it first"
            )
    kept = {file.key for other in others for file in Listing.read(objects, other.name).files}
    objects.remove(f"{LISTINGS}{name}{WHOLE}")
    left = [key for key in objects.list(BYTES) if key not in kept]
    for key in each(left):
        objects.remove(key)
    objects.remove(f"{LISTINGS}{name}{MAKING}")
    return len(left)


def verify_backup(objects: ObjectStore, name: str) -> list[str]:

    def verified(file: BackupFile, check: Check) -> Done[str | None]:
        return Done((problem_of(objects, file, None, check),))

    files = Listing.read(objects, name).files
    problems = all_of([partial(verified, file) for file in files])
    return [problem for problem in problems if problem is not None]


def problem_of(
    objects: ObjectStore, file: BackupFile, write: Callable[[bytes], object] | None, check: Check
) -> str | None:
    """Read a file's bytes and pass them to ``write``; returns the problem, if any."""
    size = objects.size(file.key)
    if size != file.size:
        found = "is missing" if size is None else f"has {size:,} bytes"
        return f"{objects.describe(file.key)} {found}; {file.path} has {file.size:,}"
    digest = xxhash.xxh3_128()
    for at in range(0, size, PIECE_BYTES):
        check()
        piece = objects.read(file.key, at, min(PIECE_BYTES, size - at))
        digest.update(piece)
        if write is not None:
            write(piece)
    if digest.hexdigest() != file.digest:
        return f"{objects.describe(file.key)} is damaged: {file.path} does not fit its digest"
    return None
