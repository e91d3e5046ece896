"""Log lines, as text or JSON, that a client cannot forge.

Purpose
    :func:`configure_logging` sends the log of Chronicle and Uvicorn to stderr.

Guarantee
    A record is one line that begins with its time; what belongs to it further, a traceback, is
    indented.  Characters that move the cursor or begin a line, which clients can put into
    addresses and values, are written as escapes.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time

from .access.settings import Settings

__all__ = ["JsonFormatter", "TextFormatter", "configure_logging"]

_EXTRAS = (
    *("client", "method", "path", "status", "ms", "received_bytes", "sent_bytes"),
    *("request_id", "token"),
)
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def _shown(text: str) -> str:
    """A text in one line, without anything that acts on a terminal."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


class TextFormatter(logging.Formatter):
    """Time, level, logger and message in a line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """One line of the message."""
        record.message = _shown(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802
        """The lines of a traceback, indented."""
        lines = super().formatException(ei).split("\n")  # type: ignore[arg-type]
        return "\n".join("    " + _shown(line) for line in lines)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, and the fields of a request."""

    def format(self, record: logging.LogRecord) -> str:
        """Render a record."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((key, record.__dict__[key]) for key in _EXTRAS if key in record.__dict__)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(settings: Settings) -> None:
    """Send the log of Chronicle and Uvicorn to stderr, as text or JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
    for name in ("chronicle", "uvicorn"):
        target = logging.getLogger(name)
        target.handlers[:] = [handler]
        target.setLevel(settings.log_level.upper())
        target.propagate = False
    if settings.log_level == "info":  # what Uvicorn tells at this level, the application tells
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
