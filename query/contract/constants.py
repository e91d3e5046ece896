"""Calibrated constants of cost models, as JSON in the store; invalid files are ignored."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...store.file_contract import replace_file
from ...store.files import RealFiles

_VERSION = 1

Constants = TypeVar("Constants")


class ConstantsFile(Generic[Constants]):
    """Nanoseconds by name, in file ``name`` of a store.  ``kind``: a dataclass of floats with
    defaults; ``variable``: environment variable that names another file to read.
    """

    def __init__(self, name: str, kind: type[Constants], variable: str | None = None) -> None:
        self.name = name
        self._kind: Any = kind
        self._variable = variable
        self._known: dict[Path, tuple[int, Constants]] = {}

    def load(self, store: str | os.PathLike[str] | None) -> Constants:
        """The stored constants, or the defaults."""
        told = os.environ.get(self._variable) if self._variable else None
        defaults: Constants = self._kind()
        if not told and store is None:
            return defaults
        path = Path(told) if told else Path(str(store)) / self.name
        try:
            changed = path.stat().st_mtime_ns
            known = self._known.get(path)
            if known is None or known[0] != changed:
                known = self._known[path] = changed, self._parsed(path.read_text())
            return known[1]
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return defaults

    def _parsed(self, text: str) -> Constants:
        kept = json.loads(text)
        if kept["version"] != _VERSION:
            raise ValueError(f"constants of version {kept['version']}")
        numbers = {name: float(value) for name, value in kept["nanoseconds"].items()}
        if not all(0 < value < math.inf for value in numbers.values()):
            raise ValueError("a constant that is not above zero")
        found: Constants = self._kind(**numbers)
        return found

    def save(self, store: str | os.PathLike[str], constants: Constants) -> Path:
        """Replace the file atomically; raises StorageFull or StorageFailed."""
        kept = {"version": _VERSION, "nanoseconds": asdict(constants)}  # type: ignore[call-overload]
        replace_file(RealFiles(store), self.name, f"{json.dumps(kept, indent=2)}\n".encode())
        return Path(store) / self.name
