"""Where the server keeps its own files inside the store's directory.

Layout
    ::

        <store>/server/               0700
            tokens.json               0600, replaced whole; see .tokens
            token-uses.json           when each was last used
            tokens.lock               held while tokens.json is rewritten
            idempotency.wal           a log of the store's kind; see .key_log
            transactions/<job>/       parts of transactions; see .transactions
            jobs.local/<job>.json     jobs; see ..service.job_files

Guarantee
    A file that is replaced is never seen half written; see :mod:`chronicle.store.atomic_file`.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...store import atomic_file
from ...store.files import RealFiles

__all__ = ["replace_file", "server_directory"]


def server_directory(store: str | os.PathLike[str], *, create: bool = False) -> Path:
    """Directory of the server's own files in a store."""
    path = Path(store) / "server"
    if create:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file's content at once; only its owner may read the new one."""
    atomic_file.replace_file(RealFiles(path.parent), path.name, content, private=True)
