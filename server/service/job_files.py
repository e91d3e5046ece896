"""The durable records of jobs: ``<store>/server/jobs.local/<id>.json``, mode 0600, replaced
atomically.  Backups leave the directory out (``store.backup.LOCAL``), so that a copy of the store
does not repeat the work.  An unreadable record is logged and left alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from ...store.backup import LOCAL
from ..access.server_directory import replace_file, server_directory

__all__ = ["JobFiles"]

logger = logging.getLogger("chronicle.server")
DIRECTORY = f"jobs{LOCAL}"
_NAME = re.compile(r"[0-9a-f]{16}\.json")


class JobFiles:
    def __init__(self, store: str | os.PathLike[str]) -> None:
        self._store = store
        self._writing = threading.Lock()

    def read(self) -> list[dict[str, Any]]:
        directory = server_directory(self._store) / DIRECTORY
        found = []
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            if not _NAME.fullmatch(path.name):
                path.unlink(missing_ok=True)  # a temporary file that a crash left
                continue
            try:
                record = orjson.loads(path.read_bytes())
                if not isinstance(record, dict):
                    raise ValueError("no object")
            except (OSError, ValueError) as error:
                logger.warning("the record of a job, %s, cannot be read: %s", path, error)
            else:
                found.append(record)
        return found

    def write(self, job_id: str, record: Callable[[], dict[str, Any]]) -> None:
        path = self._path(job_id)
        with self._writing:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, orjson.dumps(record()))

    def remove(self, job_id: str) -> None:
        with contextlib.suppress(OSError), self._writing:
            self._path(job_id).unlink(missing_ok=True)

    def _path(self, job_id: str) -> Path:
        return server_directory(self._store, create=True) / DIRECTORY / f"{job_id}.json"
