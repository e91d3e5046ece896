"""The file of what was changed for good, and of who was refused.

Purpose
    The access log goes where the process's errors go.  :func:`note` keeps, beside the tokens, a
    line for what somebody may ask about a year later: tokens made and revoked, here; requests that
    used the scope ``admin`` or ``operate``, or were refused, in :mod:`..service.audit`.

Layout
    ``<store>/server/audit.log``, mode 0600, one JSON object a line::

        {"time": "2026-11-22T10:00:00Z", "did": "revoked a token", "token": "grafana", "id": "3f9c"}

    A file of :data:`BYTES_MAX` becomes ``audit.log.1``, in place of an older one.

Limits
    Not synced.  A disk that takes no line stops nothing: the line is in the process's log then.
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
    """Write a line; may be called by several processes."""
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
