"""Where the server keeps what is its own inside the store's directory.

Layout
    ::

        <store>/server/               0700
            tokens.json               0600, replaced whole; see chronicle.server.tokens
            tokens.lock               held while tokens.json is rewritten
            idempotency.wal           a log of the store's kind; see chronicle.server.key_log
            transactions/<job>/       parts of transactions; see chronicle.server.transactions

Guarantee
    A file that is replaced is never seen half written: new file, fsync, rename, fsync of the
    directory.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["replace_file", "server_directory", "sync_directory"]


def server_directory(store: str | os.PathLike[str], *, create: bool = False) -> Path:
    """Directory of the server's own files in a store."""
    path = Path(store) / "server"
    if create:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def sync_directory(path: Path) -> None:
    """Make renames and new names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file's content at once; only its owner may read the new one."""
    descriptor, name = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    sync_directory(path.parent)
