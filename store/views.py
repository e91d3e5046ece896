"""The views of a store, in ``views/MANIFEST``, a manifest (``catalog``) that is replaced
atomically::

    {"views": [{"name": ..., "sql": ..., "sources": [...], "columns": "<Arrow schema>"}]}

A view never has the name of a stream.  The query layer interprets the texts.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..core.ownership import OwnedLock
from ..errors import CorruptStore, StreamExists
from .catalog import read_manifest, write_manifest
from .file_contract import Files

DIRECTORY = "views"


@dataclass(frozen=True)
class StoredView:
    """A view: its text, the streams and views that it names, its schema at creation."""

    name: str
    sql: str
    sources: tuple[str, ...]
    columns: pa.Schema

    def to_json(self) -> dict[str, Any]:
        columns = base64.b64encode(self.columns.serialize().to_pybytes()).decode("ascii")
        return {
            "name": self.name,
            "sql": self.sql,
            "sources": list(self.sources),
            "columns": columns,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> StoredView:
        columns = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["columns"])))
        return cls(
            str(document["name"]),
            str(document["sql"]),
            tuple(map(str, document["sources"])),
            columns,
        )


class Views:
    """The views of an open store; thread-safe.  Mode ``rw`` caches them."""

    def __init__(self, files: Files, mode: str) -> None:
        self._files = files
        self._mode = mode
        self._lock = OwnedLock("the views of the store")
        self._views: dict[str, StoredView] | None = None

    def all(self) -> dict[str, StoredView]:
        """All views by name, sorted; not to be modified.  ``CorruptStore`` if unreadable."""
        views = self._views
        if views is None or self._mode == "r":
            views = self._views = stored_views(self._files)
        return views

    def keep(self, view: StoredView) -> None:
        """Add or replace a view; durable on return, and unchanged on an error."""
        with self._lock:
            self._write({**self.all(), view.name: view})

    def drop(self, names: Iterable[str]) -> None:
        gone = set(names)
        with self._lock:
            self._write({name: view for name, view in self.all().items() if name not in gone})

    def reading(self, name: str) -> list[str]:
        """The views that read a stream or view, directly or indirectly; nearest first."""
        names: list[str] = []
        waiting = [name]
        while waiting:
            source = waiting.pop(0).lower()
            for view in self.all().values():
                if view.name not in names and source in (s.lower() for s in view.sources):
                    names.append(view.name)
                    waiting.append(view.name)
        return names

    def _write(self, views: dict[str, StoredView]) -> None:
        views = dict(sorted(views.items()))
        if not self._files.exists(DIRECTORY):
            self._files.make_directory(DIRECTORY)
            self._files.sync_directory("")
        document = {"views": [view.to_json() for view in views.values()]}
        try:
            write_manifest(self._files, DIRECTORY, document)
        finally:
            self._views = None  # read the file again
        self._views = views


def stored_views(files: Files) -> dict[str, StoredView]:
    body = read_manifest(files, DIRECTORY)
    try:
        listed = [] if body is None else [StoredView.from_json(each) for each in body["views"]]
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise CorruptStore(
            f"{DIRECTORY}/MANIFEST hashes right but misses something: {error!r}"
        ) from error
    return {view.name: view for view in listed}


def check_free(files: Files, name: str) -> None:
    """Raise ``StreamExists`` if a view has the name."""
    if files.exists(f"{DIRECTORY}/MANIFEST"):
        for taken in stored_views(files):
            if taken.lower() == name.lower():
                raise StreamExists(
                    f"there is a view {taken!r}; drop it (DROP VIEW) or choose another name"
                )
