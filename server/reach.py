"""The store as far as one token reaches: streams beyond do not exist.

Purpose
    :class:`Reach` is the catalog that SQL runs against for a token that is restricted to some
    streams.  Every statement asks a catalog for the streams that it names, wherever in its grammar
    the names stand, so what is not in it can be neither read nor changed nor guessed.

Guarantee
    Lists, hints (``did you mean``) and errors name streams within reach only.  A stream out of
    reach answers as one that does not exist: by the same error, in the same words.

Limits
    Names only: what a token may do with a stream is a matter of scopes, which
    :func:`chronicle.server.statements.authorize` looks at.  How long an answer takes is not hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from ..errors import StreamNotFound
from ..schema import StreamSchema

if TYPE_CHECKING:
    from ..database import Database
    from ..store import Snapshot

__all__ = ["Reach", "unknown_stream"]

Result = TypeVar("Result")


def unknown_stream(name: str, known: Sequence[str]) -> StreamNotFound:
    """The error for a stream that is not there, for who knows only these."""
    listed = f"there are {', '.join(known)}" if known else "there are none within reach"
    return StreamNotFound(f"no stream {name!r}; {listed}")


class Reach:
    """A catalog (:class:`chronicle.query.catalog.Catalog`) of those streams that are reached.

    Parameters
    ----------
    database : Database
    reaches : callable
        Whether a name is within reach.
    """

    def __init__(self, database: Database, reaches: Callable[[str], bool]) -> None:
        self._database = database
        self._reaches = reaches

    @property
    def mode(self) -> str:
        """``"rw"`` or ``"r"``."""
        return self._database.mode

    @property
    def path(self) -> Path:
        """Directory of the store."""
        return self._database.path

    def streams(self) -> list[str]:
        """Names of the streams within reach, sorted."""
        return [name for name in self._database.streams() if self._reaches(name)]

    def _ask(self, call: Callable[..., Result], name: str, *args: Any, **more: Any) -> Result:
        if not self._reaches(name):
            raise unknown_stream(name, self.streams())
        try:
            return call(name, *args, **more)
        except StreamNotFound:
            raise unknown_stream(name, self.streams()) from None

    def stream_schema(self, name: str) -> StreamSchema:
        """Schema of a stream."""
        return self._ask(self._database.stream_schema, name)

    def snapshot(self, name: str) -> Snapshot:
        """A view of a stream as of now."""
        return self._ask(self._database.snapshot, name)

    def append_arrow(self, name: str, data: pa.Table) -> int:
        """Append events."""
        return self._ask(self._database.append_arrow, name, data)

    def create_stream(self, name: str, schema: StreamSchema, **options: Any) -> Any:
        """Create a stream."""
        return self._ask(self._database.create_stream, name, schema, **options)

    def drop_stream(self, name: str, *, if_exists: bool = False) -> None:
        """Remove a stream."""
        self._ask(self._database.drop_stream, name, if_exists=if_exists)

    def add_column(self, name: str, column: str, type_: pa.DataType) -> None:
        """Add an attribute."""
        self._ask(self._database.add_column, name, column, type_)

    def create_index(self, name: str, attribute: str, **options: Any) -> None:
        """Build an index."""
        self._ask(self._database.create_index, name, attribute, **options)

    def drop_index(self, name: str, attribute: str) -> None:
        """Remove an index."""
        self._ask(self._database.drop_index, name, attribute)

    def list_indexes(self, name: str) -> list[dict[str, Any]]:
        """The indexes of a stream."""
        return self._ask(self._database.list_indexes, name)

    def indexes_of(self, name: str) -> Any:
        """The built indexes of a stream, for plans."""
        return self._ask(self._database.indexes_of, name)

    def stream_options(self, name: str) -> dict[str, Any]:
        """Settings of a stream."""
        return self._ask(self._database.stream_options, name)
