"""What a statement reads and changes, and the catalogue as one caller sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...core.append_result import AppendResult
from ...core.caches import lazy
from ...errors import StreamNotFound
from ...schema import StreamSchema
from ...store.deleting import Change, Choice
from ...store.snapshot import Snapshot
from ...store.views import StoredView
from .catalog import Catalog, LiveStatements, Rollup
from .frames import Frame

if TYPE_CHECKING:
    from ...indexes.stream_indexes import StreamIndexes


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


class VisibleStreams:
    """A ``Catalog`` of the streams for which ``visible`` is true, without frames.  Changes are
    passed on; the caller has checked permissions.  ``tell`` gives this caller's rows of the system
    tables in ``catalog.TOLD``.
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

    def create_view(self, view: StoredView, *, replace: bool = False) -> None:
        self._catalog.create_view(view, replace=replace)

    def drop_view(self, name: str, *, cascade: bool = False) -> None:
        self._catalog.drop_view(name, cascade=cascade)

    def stream_schema(self, name: str) -> StreamSchema:
        self._check(name)
        return self._catalog.stream_schema(name)

    def snapshot(self, name: str) -> Snapshot:
        self._check(name)
        return self._catalog.snapshot(name)

    def damaged(self) -> dict[str, str]:
        found = self._catalog.damaged()
        return {name: why for name, why in found.items() if self._visible(name)}

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

    def told(self, table: str) -> Sequence[Mapping[str, Any]]:
        return self._tell(table)

    @property
    def frames(self) -> Mapping[str, Frame]:
        return {}

    # changes and store-wide calls are passed on

    @property
    def mode(self) -> str:
        return self._catalog.mode

    @property
    def live_statements(self) -> LiveStatements:
        return self._catalog.live_statements

    def append_arrow(self, name: str, data: pa.Table) -> AppendResult:
        return self._catalog.append_arrow(name, data)

    def delete_events(
        self, name: str, start: int | None, end: int | None, choose: Choice | None
    ) -> int:
        return self._catalog.delete_events(name, start, end, choose)

    def update_events(
        self, name: str, start: int | None, end: int | None, choose: Choice | None, change: Change
    ) -> int:
        return self._catalog.update_events(name, start, end, choose, change)

    def create_stream(self, name: str, schema: StreamSchema, **settings: Any) -> Any:
        return self._catalog.create_stream(name, schema, **settings)

    def drop_stream(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        self._catalog.drop_stream(name, if_exists=if_exists, cascade=cascade)

    def add_column(
        self,
        name: str,
        column: str,
        type_: pa.DataType,
        nullable: bool = True,
        default: Any = None,
    ) -> None:
        self._catalog.add_column(name, column, type_, nullable, default)

    def widen_column(self, name: str, column: str, type_: pa.DataType) -> None:
        self._catalog.widen_column(name, column, type_)

    def rename_column(self, name: str, column: str, to: str) -> None:
        self._catalog.rename_column(name, column, to)

    def drop_column(self, name: str, column: str) -> None:
        self._catalog.drop_column(name, column)

    def set_options(self, name: str, options: Mapping[str, Any]) -> None:
        self._catalog.set_options(name, options)

    def rename_stream(self, name: str, to: str) -> None:
        self._catalog.rename_stream(name, to)

    def create_index(self, name: str, attribute: str, *, lag_events_max: int | None = None) -> None:
        self._catalog.create_index(name, attribute, lag_events_max=lag_events_max)

    def drop_index(self, name: str, attribute: str) -> None:
        self._catalog.drop_index(name, attribute)
