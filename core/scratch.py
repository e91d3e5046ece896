"""Temporary directories that are gone when their process is, however it ended.

Purpose
    What a query spills, a reader's links to index files, the store that a server warms up with:
    such directories are removed by their maker.  One that is killed removes nothing, so the next
    process that makes a :class:`ScratchDirectory` does.

Guarantee
    A directory is removed when it is closed, when nothing refers to it any more, when the
    interpreter ends, or later by another process of the same user; never while a process that holds
    it lives, be it a fork of its maker (which does not remove it either).

Layout
    ``chronicle-KIND-xxxxxxxx.scratch`` where temporary files are (``TMPDIR``).  Its maker holds a
    lock (``flock``) on the directory itself, which ends with the last process that has it open: a
    directory of such a name whose lock can be had is nobody's.

Limits
    A process sweeps once, for at most :data:`SWEEP_S` seconds.  Where locks do not work (some
    network file systems), nothing is swept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
import weakref
from pathlib import Path

SWEEP_S = 0.5
_SUFFIX = ".scratch"
_NAMES = re.compile(rf"chronicle-[a-z]+-[a-z0-9_]{{8}}{re.escape(_SUFFIX)}")
_SWEPT: set[str] = set()


class ScratchDirectory:
    """A directory of this process for files that nobody needs after it.

    Parameters
    ----------
    kind : str
        What it is for, in small letters: a part of its name.

    Attributes
    ----------
    path : Path

    Raises
    ------
    OSError
        Where there is no place for temporary files.
    """

    def __init__(self, kind: str) -> None:
        _sweep_once()
        self.path, lock = _made(f"chronicle-{kind}-")
        self._end = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def close(self) -> None:
        """Remove it with all that is in it; more than once is fine."""
        self._end()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def _made(prefix: str) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(_SUFFIX, prefix))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        if _taken(lock) is not False and os.fstat(lock).st_nlink:
            return path, lock
        os.close(lock)  # somebody swept between the two lines, and took it for left behind


def _taken(lock: int) -> bool | None:
    """Whether a lock is ours now; None where there are none."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove(path: Path, lock: int, maker: int) -> None:
    if os.getpid() == maker:
        shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def _sweep_once() -> None:
    place = tempfile.gettempdir()
    if place in _SWEPT:
        return
    _SWEPT.add(place)
    until = time.monotonic() + SWEEP_S
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if time.monotonic() > until:
                return
            if _NAMES.fullmatch(entry.name):
                _remove_if_left(entry)


def _remove_if_left(entry: os.DirEntry[str]) -> None:
    with contextlib.suppress(OSError):
        if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
            return
        lock = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if _taken(lock):
                shutil.rmtree(entry.path, ignore_errors=True)
        finally:
            os.close(lock)
