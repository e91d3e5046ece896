"""Log lines that clients cannot forge: a record is one line, tracebacks are indented, and control
characters, which clients can put into addresses and values, are escaped.
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
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


class TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = _shown(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802
        lines = super().formatException(ei).split("\n")  # type: ignore[arg-type]
        return "\n".join("    " + _shown(line) for line in lines)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
    for name in ("chronicle", "uvicorn"):
        target = logging.getLogger(name)
        target.handlers[:] = [handler]
        target.setLevel(settings.log_level.upper())
        target.propagate = False
    if settings.log_level == "info":  # the application logs the same at this level
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
