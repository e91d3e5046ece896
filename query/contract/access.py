"""What a statement reads and changes, and the catalogue as one caller sees it.

Purpose
    A server must know what a statement touches before it runs: :class:`Access` says it, computed
    from the bound statement, so that a stream is found wherever in the statement it is named.
    :class:`VisibleStreams` is a catalogue in which streams out of a caller's reach do not exist,
    neither for names nor for suggestions.

Guarantee
    ``reads`` holds every stream from which any part of the statement reads: queries, subqueries in
    VALUES, inputs of operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import StreamNotFound
from ...schema import StreamSchema
from ...store.snapshot import Snapshot
from .catalog import Catalog

__all__ = ["Access", "VisibleStreams"]


@dataclass(frozen=True)
class Access:
    """What a statement does.

    Attributes
    ----------
    kind : str
        Class of the syntax tree, such as ``Select`` or ``DropStream``.
    scope : {"read", "write", "admin"}
        ``write``: it adds events or a stream; ``admin``: it drops, alters or indexes.
    target : str or None
        Stream that is changed, as it is written.
    reads : frozenset of str
        Streams that it reads.
    """

    kind: str
    scope: str
    target: str | None = None
    reads: frozenset[str] = frozenset()


class VisibleStreams:
    """A catalogue of only those streams for which ``visible`` is true.

    What is not about a stream's name is passed on as it is.
    """

    def __init__(self, catalog: Catalog, visible: Callable[[str], bool]) -> None:
        self._catalog = catalog
        self._visible = visible

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def _check(self, name: str) -> None:
        if not self._visible(name):
            raise StreamNotFound(f"there is no stream {name!r}")

    def streams(self) -> list[str]:
        """Names of the visible streams, sorted."""
        return [name for name in self._catalog.streams() if self._visible(name)]

    def stream_schema(self, name: str) -> StreamSchema:
        """Schema of a stream; raises StreamNotFound."""
        self._check(name)
        return self._catalog.stream_schema(name)

    def snapshot(self, name: str) -> Snapshot:
        """A consistent view of a stream as of now."""
        self._check(name)
        return self._catalog.snapshot(name)

    def list_indexes(self, name: str) -> Sequence[dict[str, Any]]:
        """The secondary indexes of a stream."""
        self._check(name)
        return self._catalog.list_indexes(name)
