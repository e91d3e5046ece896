"""The audit log: ``<store>/server/audit.log``, mode 0600, one JSON object per line::

    {"time": "2026-11-22T10:00:00Z", "did": "revoked a token", "token": "grafana", "id": "3f9c"}

At ``BYTES_MAX`` it becomes ``audit.log.1``, replacing an older one.  Not synced; a line that cannot
be written goes to the process's log.
"""

from __future__ import annotations

import logging
import os
import time

import orjson

from .server_directory import server_directory

__all__ = ["note"]

logger = logging.getLogger("chronicle.server.audit")
FILE_NAME = "audit.log"
BYTES_MAX = 64 << 20


def note(store: str | os.PathLike[str], **facts: object) -> None:
    """Write a line; safe across processes."""
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **facts}
    text = orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE)
    try:
        path = server_directory(store, create=True) / FILE_NAME
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, text)
            full = os.fstat(file).st_size >= BYTES_MAX
        finally:
            os.close(file)
        if full:
            os.replace(path, path.with_name(FILE_NAME + ".1"))
    except OSError as error:
        logger.error("%s cannot be written (%s): %s", FILE_NAME, error.strerror, text.decode())
