"""The definitions of a stream's indexes, in a manifest (``store.catalog``) that is replaced::

    <stream>/indexes/definitions/MANIFEST       {"next": 3, "indexes": [
                                                   {"attribute": "x", "id": 1},
                                                   {"attribute": "y", "id": 2,
                                                    "lag_events_max": 1000000}]}

Unlike runs, definitions cannot be rebuilt, so they are apart from the run database.  ``next`` is an
identifier that no index has had, so runs of a dropped index are never taken for another's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

from ..errors import ChronicleError, CorruptStore, IndexExists
from ..schema import StreamSchema
from ..store.catalog import MANIFEST, Layout, read_manifest, write_manifest
from ..store.file_contract import storage_error
from ..store.files import RealFiles
from .index_key import IndexKey, index_key

DIRECTORY = "definitions"


@dataclass(frozen=True)
class Definitions:
    """Identifiers and lag limits (events; optional) by attribute, and the next identifier."""

    identifiers: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    next: int = 1

    def adding(self, attribute: str, lag_events_max: int | None) -> Definitions:
        """With one more index; ``IndexExists`` if there is one."""
        if attribute in self.identifiers:
            raise IndexExists(f"there is an index on {attribute!r} already")
        limits = dict(self.limits)
        if lag_events_max is not None:
            limits[attribute] = lag_events_max
        identifiers = {**self.identifiers, attribute: self.next}
        return Definitions(identifiers, limits, self.next + 1)

    def beyond(self, used: int) -> Definitions:
        return with_fields(self, next=max(self.next, used + 1))

    def without(self, attribute: str) -> Definitions:
        return with_fields(
            self,
            identifiers={n: i for n, i in self.identifiers.items() if n != attribute},
            limits={n: limit for n, limit in self.limits.items() if n != attribute},
        )

    def following(self, layouts: Sequence[Layout], schema: StreamSchema) -> Definitions:
        """Adapted to attributes that were renamed or dropped since."""
        adapted = self
        for name in self.identifiers:
            if _key(name, schema) is not None:
                continue
            keys = ((layout, _key(name, layout.written)) for layout in reversed(layouts))
            layout, key = next(((one, key) for one, key in keys if key is not None), (None, None))
            written = () if layout is None else zip(layout.written.names, layout.names, strict=True)
            now = {old: to for old, to in written if to is not None}
            moved = None if key is None or not now.keys() >= set(key.columns) else key.renamed(now)
            if moved is None or _key(moved, schema) is None:  # a type without keys
                adapted = adapted.without(name)
            else:
                adapted = adapted.renamed(name, moved)
        return adapted

    def renamed(self, attribute: str, to: str) -> Definitions:

        def moved(numbers: Mapping[str, int]) -> dict[str, int]:
            return {to if name == attribute else name: value for name, value in numbers.items()}

        return with_fields(self, identifiers=moved(self.identifiers), limits=moved(self.limits))


def _key(name: str, schema: StreamSchema) -> IndexKey | None:
    try:
        key = index_key(name, schema)
    except ChronicleError:
        return None
    return key if key.name == name else None  # an attribute's name may parse as an expression


def has_indexes(path: Path) -> bool:
    return (path / DIRECTORY / MANIFEST).exists()


def read(path: Path) -> Definitions:
    """The definitions in a directory; ``CorruptStore`` when the file is damaged."""
    try:
        body = read_manifest(RealFiles(path), DIRECTORY)
    except CorruptStore as error:
        raise CorruptStore(
            f"{error}; `chronicle check --repair` removes what is left of the indexes"
        ) from error
    if body is None:
        return Definitions()
    try:
        listed = body["indexes"]
        return Definitions(
            {str(entry["attribute"]): int(entry["id"]) for entry in listed},
            {
                str(entry["attribute"]): int(entry["lag_events_max"])
                for entry in listed
                if "lag_events_max" in entry
            },
            int(body["next"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptStore(
            f"{path / DIRECTORY / MANIFEST} does not say what is indexed: {error!r}"
        ) from error


def replace(path: Path, definitions: Definitions) -> None:
    """Write definitions durably into ``<stream>/indexes``; on an error the file is unchanged."""
    files = RealFiles(path)
    before: Definitions | None = None
    with suppress(CorruptStore):
        before = read(path)
    try:
        if not files.exists(DIRECTORY):
            files.make_directory(DIRECTORY)
            files.sync_directory("")
            RealFiles(path.parent).sync_directory("")
        write_manifest(files, DIRECTORY, _body(definitions))
    except (ChronicleError, OSError) as error:
        with suppress(ChronicleError, OSError):
            if before not in (None, definitions) and read(path) == definitions:
                # only the directory sync failed: the new file is in place
                write_manifest(files, DIRECTORY, _body(before))
        if isinstance(error, ChronicleError):
            raise
        raise storage_error(error, "write", str(path / DIRECTORY)) from error


def _body(definitions: Definitions) -> dict[str, Any]:
    indexes: list[dict[str, Any]] = []
    for attribute, index in definitions.identifiers.items():
        indexes.append({"attribute": attribute, "id": index})
        if attribute in definitions.limits:
            indexes[-1]["lag_events_max"] = definitions.limits[attribute]
    return {"next": definitions.next, "indexes": indexes}
