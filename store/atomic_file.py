"""Atomic replacement of a small file: new file, content, sync, rename, sync of the directory.

A reader sees the old content or the new one, also after a crash; when ``replace_file`` has returned
the new one, also after a power cut.  When it raises, the old one, unless only the sync of the
directory has failed.  A crash may leave the new file under its temporary name.
"""

from __future__ import annotations

import posixpath
import secrets
from contextlib import suppress

from .file_contract import Files

__all__ = ["replace_file"]


def replace_file(
    files: Files,
    path: str,
    content: bytes,
    *,
    temporary: str | None = None,
    private: bool = False,
) -> None:
    """Replace or create a file durably and atomically; its directory must exist.  A leftover
    ``temporary`` file is removed.  Only the owner may read a ``private`` file.
    """
    if temporary is None:
        temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    else:
        with suppress(FileNotFoundError):
            files.remove(temporary)
    try:
        with files.create(temporary, private=private) as file:
            file.write(content)
            file.sync()
        files.replace(temporary, path)
    except Exception:
        with suppress(Exception):  # also when the disk is full
            files.remove(temporary)
        raise
    files.sync_directory(posixpath.dirname(path))
