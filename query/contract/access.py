"""What a statement reads and changes, and the catalogue as one caller sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.caches import lazy
from ...errors import StreamNotFound
from ...schema import StreamSchema
from ...store.snapshot import Snapshot
from ...store.views import StoredView
from .catalog import Catalog, Changes, LiveStatements, Rollup

if TYPE_CHECKING:
    from ...indexes.stream_indexes import StreamIndexes
    from .frames import Frame


Tell = Callable[[str], Sequence[Mapping[str, Any]]]
"""Rows of a system table for one caller, by its name."""


@dataclass(frozen=True)
class Access:
    """What a statement does.  ``kind``: class of the syntax tree, such as ``Select``; ``scope``:
    read, write (adds events or a stream) or admin (drops, alters, indexes); ``target``: stream that
    is changed, as written; ``find_reads`` binds the statement if necessary; ``renamed``: new name
    of the target.
    """

    kind: str
    scope: str
    target: str | None = None
    find_reads: Callable[[], frozenset[str]] = frozenset
    renamed: str | None = None

    @lazy
    def reads(self) -> frozenset[str]:
        return self.find_reads()


class WithFrames:
    """A ``Catalog`` with further frames."""

    def __init__(self, catalog: Catalog, frames: Mapping[str, Frame]) -> None:
        self._catalog = catalog
        self.frames = frames

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


class VisibleStreams:
    """A ``Catalog`` of the streams for which ``visible`` is true, without frames.  ``tell``
    gives this caller's rows of the system tables in ``catalog.OWNER_TABLES``.
    """

    def __init__(
        self, catalog: Catalog, visible: Callable[[str], bool], tell: Tell | None = None
    ) -> None:
        self._catalog = catalog
        self._visible = visible
        self._tell = tell or (lambda _: ())

    def _check(self, name: str) -> None:
        if not self._visible(name):
            raise StreamNotFound(f"there is no stream {name!r}")

    def streams(self) -> list[str]:
        return [name for name in self._catalog.streams() if self._visible(name)]

    def views(self) -> Mapping[str, StoredView]:
        return {name: view for name, view in self._catalog.views().items() if self._visible(name)}

    def stream_schema(self, name: str) -> StreamSchema:
        self._check(name)
        return self._catalog.stream_schema(name)

    def snapshot(self, name: str) -> Snapshot:
        self._check(name)
        return self._catalog.snapshot(name)

    def damaged(self) -> dict[str, str]:
        damaged = self._catalog.damaged()
        return {name: why for name, why in damaged.items() if self._visible(name)}

    def indexes_of(self, name: str) -> StreamIndexes | None:
        self._check(name)
        return self._catalog.indexes_of(name)

    def rollups_of(self, name: str) -> Sequence[Rollup]:
        return [each for each in self._catalog.rollups_of(name) if self._visible(each.sink)]

    def list_indexes(self, name: str) -> Sequence[dict[str, Any]]:
        self._check(name)
        return self._catalog.list_indexes(name)

    def stream_options(self, name: str) -> dict[str, Any]:
        self._check(name)
        return self._catalog.stream_options(name)

    def owner_rows(self, table: str) -> Sequence[Mapping[str, Any]]:
        return self._tell(table)

    @property
    def frames(self) -> Mapping[str, Frame]:
        return {}

    @property
    def mode(self) -> str:
        return self._catalog.mode

    @property
    def live_statements(self) -> LiveStatements:
        return self._catalog.live_statements

    @property
    def changes(self) -> Changes:
        return self._catalog.changes
