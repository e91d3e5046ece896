"""The server's own files::

    <store>/server/               0700
        tokens.json               0600, replaced atomically; see tokens
        token-uses.json           last use of each token
        tokens.lock               held while tokens.json is rewritten
        audit.log                 see audit_log
        idempotency.wal           see service.key_log
        transactions/<job>/       parts; see service.transactions
        jobs.local/<job>.json     see service.job_files

A replaced file is never seen half written (``store.atomic_file``).
"""

from __future__ import annotations

import os
from pathlib import Path

from ...store import atomic_file
from ...store.files import RealFiles

__all__ = ["replace_file", "server_directory"]


def server_directory(store: str | os.PathLike[str], *, create: bool = False) -> Path:
    path = Path(store) / "server"
    if create:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically, readable by its owner only."""
    atomic_file.replace_file(RealFiles(path.parent), path.name, content, private=True)
