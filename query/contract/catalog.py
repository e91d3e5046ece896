"""What the query layer requires of the database; ``catalog/store_catalog.py`` implements it.

``chronicle.live`` implements the interface of live queries.  A roll-up is a live query over
``TUMBLE`` whose results outlive its events.  Keys, aggregates and conditions are canonical texts
(``binding.window_binding``).  Rows of system tables are as of planning, limited to what the caller
may see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ...schema import StreamSchema
from ...store.snapshot import Snapshot
from ...store.views import StoredView

if TYPE_CHECKING:
    from ...indexes.stream_indexes import StreamIndexes
    from .frames import Frame


@dataclass(frozen=True)
class Given:
    """A constant of a statement or caller.  ``value``: a number, or a time or text as written;
    ``nanoseconds``: length of an interval; ``at``: offset in the text.
    """

    value: Any
    nanoseconds: int | None = None
    at: int | None = None


@dataclass(frozen=True)
class LiveRequest:
    """CREATE LIVE QUERY with folded constants, not yet checked against streams.  ``tree``: the
    parsed SELECT, ``sql`` its text, ``text`` the whole statement; ``start``: ``first``, ``now`` or
    a time; ``idle``: ``never``, a wall-clock length, or None for the default; ``late``: ``correct``
    or ``ignore``; ``every``: interval of EMIT ON CHANGE (None: ON CLOSE); ``at``: offset of the
    name.
    """

    name: str
    tree: Any
    text: str
    sql: str
    into: str | None = None
    start: str | Given = "first"
    delay: Given | None = None
    idle: str | Given | None = None
    late: str = "correct"
    correct_for: Given | None = None
    every: Given | None = None
    options: Mapping[str, Given] = field(default_factory=dict)
    exists_ok: bool = False
    at: int | None = None
    rollup: bool = False


class LiveStatements(Protocol):
    """The live queries of a database."""

    def names(self) -> list[str]:
        """All names, sorted."""

    def rollups(self) -> list[str]:
        """Names of the roll-ups, sorted."""

    def rollup_row(self, name: str) -> dict[str, Any]:
        """A row of SHOW ROLLUPS."""

    def sink_of(self, name: str) -> str:
        """The stream of its results."""

    def create(self, request: LiveRequest) -> bool:
        """Create one; False if it exists and ``exists_ok``."""

    def drop(self, name: str, keep_results: bool) -> None:
        """Drop one, and its results unless they are kept."""

    def pause(self, name: str) -> None:
        """Stop one until it is resumed."""

    def resume(self, name: str) -> None:
        """Continue where it stopped, also after a failure."""

    def refresh(self, name: str, start: Any, end: Any) -> None:
        """Recompute its results in a range of time."""

    def status(self, name: str) -> dict[str, Any]:
        """A row of SHOW LIVE QUERIES."""

    def describe(self, name: str) -> list[tuple[str, str]]:
        """Names and texts that describe one."""

    def explain(self, name: str) -> list[str]:
        """How one is computed, line by line."""


@dataclass(frozen=True)
class Rollup:
    """A roll-up of ``stream`` into ``sink``, with windows of ``size`` ticks from ``origin``.
    ``keys``: column by key; ``attributes``: column by attribute, for keys that are attributes;
    ``aggregates``: column by (function, operand); ``conditions``: filters on its events;
    ``last_mark``: mark of its last step if it runs in this process, else None.
    """

    name: str
    sink: str
    stream: str
    size: int
    origin: int
    keys: Mapping[str, str]
    attributes: Mapping[str, str]
    aggregates: Mapping[tuple[str, str], str]
    conditions: frozenset[str]
    last_mark: Callable[[], Mapping[str, Any] | None] = lambda: None

    def begin(self, tick: int) -> int:
        return (tick - self.origin) // self.size * self.size + self.origin

    def aligned(self, tick: int) -> bool:
        return (tick - self.origin) % self.size == 0


class Changes(Protocol):
    """The changes that statements can make; who asks for one has checked permissions."""

    def create_view(self, view: StoredView, *, replace: bool = False) -> None:
        """Store a view; raises StreamExists."""

    def drop_view(self, name: str, *, cascade: bool = False) -> None:
        """Remove a view; raises StreamOwned if others read it."""

    def stream(self, name: str) -> Any:
        """The ``catalog.streams.Stream``, which changes its events, columns and settings."""

    def handle(self, name: str) -> Any:
        """The store's stream, which changes its events by ticks."""

    def create_stream(
        self,
        name: str,
        schema: StreamSchema,
        *,
        retention: str | int | None = None,
        codec: str = "lz4",
        if_not_exists: bool = False,
        options: Mapping[str, Any] | None = None,
        events: Iterable[pa.RecordBatch] | None = None,
    ) -> Any:
        """Create a stream that initially holds ``events``."""

    def drop_stream(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Remove a stream; with ``cascade`` the views that read it, too."""

    def rename_stream(self, name: str, to: str) -> None:
        """Give a stream another name."""

    def create_index(self, name: str, attribute: str, *, lag_events_max: int | None = None) -> None:
        """Build a secondary index."""

    def drop_index(self, name: str, attribute: str) -> None:
        """Remove a secondary index."""


class Catalog(Protocol):
    """Streams by name, as one caller sees them."""

    @property
    def mode(self) -> str:
        """``"rw"`` or ``"r"``."""

    def indexes_of(self, name: str) -> StreamIndexes | None:
        """The secondary indexes of a stream; None for a stream without any."""

    @property
    def live_statements(self) -> LiveStatements:
        """The live queries."""

    def rollups_of(self, name: str) -> Sequence[Rollup]:
        """The roll-ups of a stream that may answer its queries."""

    @property
    def changes(self) -> Changes:
        """Where statements change the store."""

    @property
    def frames(self) -> Mapping[str, Frame]:
        """Registered tables of the program, by name in lower case."""

    def streams(self) -> list[str]:
        """Names of all streams, sorted."""

    def damaged(self) -> dict[str, str]:
        """Streams that cannot be opened, each with the reason."""

    def views(self) -> Mapping[str, StoredView]:
        """Views by name, sorted."""

    def stream_schema(self, name: str) -> StreamSchema:
        """Schema of a stream; raises StreamNotFound."""

    def snapshot(self, name: str) -> Snapshot:
        """A consistent view of a stream as of now."""

    def list_indexes(self, name: str) -> Sequence[dict[str, Any]]:
        """The secondary indexes of a stream."""

    def stream_options(self, name: str) -> dict[str, Any]:
        """Settings of a stream as given: codec, retention."""

    def owner_rows(self, table: str) -> Sequence[Mapping[str, Any]]:
        """Rows of a system table in ``OWNER_TABLES``."""


TEXT, WHOLE, REAL = pa.string(), pa.int64(), pa.float64()
MOMENT = pa.timestamp("us", "UTC")


def _columns(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


LIVE_QUERIES = _columns(
    name=TEXT, sink=TEXT, state=TEXT, sources=TEXT, watermark=TEXT, lag_events=WHOLE, lag_ms=REAL,
    rows=WHOLE, retractions=WHOLE, late=WHOLE, ignored=WHOLE, state_bytes=WHOLE, error=TEXT,
)  # fmt: skip

SYSTEM_TABLES: Mapping[str, Mapping[str, pa.Schema]] = {
    "chronicle": {
        "streams": _columns(
            stream=TEXT, time=TEXT, events=WHOLE, first=TEXT, last=TEXT, bytes=WHOLE,
            segments=WHOLE, version=WHOLE, codec=TEXT, retention=TEXT, unique_key=TEXT, within=TEXT,
            move_after=TEXT, keep_local_bytes=TEXT, damage=TEXT,
        ),
        "indexes": _columns(
            stream=TEXT, attribute=TEXT, state=TEXT, covered=REAL, runs=WHOLE, bytes=WHOLE,
            problem=TEXT,
        ),
        "segments": _columns(
            stream=TEXT, segment=WHOLE, kind=TEXT, events=WHOLE, first=TEXT, last=TEXT, bytes=WHOLE,
            place=TEXT,
        ),
        "live_queries": LIVE_QUERIES,
        "queries": _columns(
            id=TEXT, kind=TEXT, text=TEXT, token=TEXT, started=MOMENT, running_ms=REAL,
            events_read=WHOLE, events_expected=WHOLE,
        ),
        "query_log": _columns(
            id=TEXT, kind=TEXT, text=TEXT, token=TEXT, started=MOMENT, duration_ms=REAL,
            rows=WHOLE, outcome=TEXT, error=TEXT,
        ),
        "settings": _columns(name=TEXT, value=TEXT, description=TEXT),
    },
    "information_schema": {
        "schemata": _columns(catalog_name=TEXT, schema_name=TEXT),
        "tables": _columns(
            table_catalog=TEXT, table_schema=TEXT, table_name=TEXT, table_type=TEXT,
        ),
        "columns": _columns(
            table_catalog=TEXT, table_schema=TEXT, table_name=TEXT, column_name=TEXT,
            ordinal_position=WHOLE, column_default=TEXT, is_nullable=TEXT, data_type=TEXT,
        ),
        "views": _columns(
            table_catalog=TEXT, table_schema=TEXT, table_name=TEXT, view_definition=TEXT,
        ),
    },
}  # fmt: skip

OWNER_TABLES = frozenset(("queries", "query_log", "settings"))
"""Tables of ``chronicle`` whose rows ``Catalog.owner_rows`` gives."""
