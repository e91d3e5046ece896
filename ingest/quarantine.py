"""Policies for bad rows: ``fail`` at the first, ``skip`` and count, or ``quarantine``.

A quarantine file is NDJSON, by default ``<store>-quarantine/<stream>-<UTC time>.ndjson``::

    {"source": "f.csv", "row": 16, "line": 17, "column": "speed", "value": "abc",
     "reason": "expected a number (double), found 'abc'", "record": "2018-08-01,abc,7"}

It is created with the first bad row, and removed if the ingest stores nothing.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
from collections import Counter
from pathlib import Path
from typing import IO

from ..errors import IngestError
from ..formats import BadRow, fail

__all__ = ["BadRows", "quarantine_path"]

EXAMPLES = 5


def quarantine_path(store: str | os.PathLike[str], stream: str) -> Path:
    """Default path for an ingest that begins now."""
    place = Path(os.path.abspath(store))
    now = dt.datetime.now(dt.timezone.utc).strftime("%Y%m%dT%H%M%S%fZ")
    name = re.sub(r"[^\w.-]", "_", stream)
    return place.with_name(f"{place.name}-quarantine") / f"{name}-{now}.ndjson"


class BadRows:
    """A policy for bad rows; call it with each."""

    def __init__(self, on_error: str, path: Path | None = None) -> None:
        self.count = 0
        self.examples: list[str] = []
        self.columns: Counter[str] = Counter()
        self.path = path if on_error == "quarantine" else None
        self._strict = on_error == "fail"
        self._file: IO[str] | None = None

    def __call__(self, bad: BadRow) -> None:
        if self._strict:
            fail(bad)
        self.count += 1
        self.columns[bad.column or "(the row as a whole)"] += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(str(bad))
        if self.path is not None:
            self._keep(self.path, bad)

    def _keep(self, path: Path, bad: BadRow) -> None:
        try:
            if self._file is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = open(path, "x", encoding="utf-8")  # noqa: SIM115 - closed by close()
            self._file.write(bad.to_json() + "\n")
        except FileExistsError:
            raise IngestError(
                f"the quarantine file {path} exists already; name another one"
            ) from None
        except OSError as error:
            raise IngestError(
                f"cannot write the quarantine file {path}: {error.strerror}"
            ) from None

    @property
    def kept(self) -> Path | None:
        """The quarantine file, if one was written."""
        return self.path if self._file is not None else None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def discard(self) -> None:
        """Remove the file after an ingest that stored nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None
            if self.path is not None:
                with contextlib.suppress(OSError):
                    self.path.unlink()
                    self.path.parent.rmdir()
