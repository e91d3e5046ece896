"""Tails: a stream's events as they are committed, in the order of commits.

Guarantee: a ``Tail`` gives every event that was committed after its start exactly once, in the
order of commits; events of one commit in time order, ties in order of arrival.  After each event
its position is a ``Place``, a short text from which another tail can resume::

    80          all events up to commit 80
    80.3        and 3 events of the following commit
    57~80.3     3 events, in time order, of those committed after 57 and up to 80

Sources: the latest commits, from memory and the log (``store.recent``).  A tail that begins earlier
first reads the difference between that commit and the present one, in time order
(``store.changes``), then single commits.

Limits: a place before the latest commits is valid while the log holds its commits, or within
``KEPT_SECONDS`` after a tail began to catch up from there; otherwise ``SnapshotExpired``.  A
truncation cannot be followed.  With a ``durability`` below ``commit``, a crash may undo events that
a tail has given.  Columns are fixed at the start.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.closing import Closing
from ..core.times import INT64_MAX
from ..errors import (
    InvalidArgument,
    ResourceLimit,
    SchemaMismatch,
    SnapshotExpired,
    StoreClosed,
)
from ..schema import StreamSchema
from ..store.changes import new_events, new_ranges
from ..store.pins import Pin, keep_pin, load_pin, pin_stream, stored_pins, sweep_pins
from ..store.recent import BatchSnapshot, Commit, CommitTap, LargeCommit, logged_commits
from ..store.stream import EventStream, StreamReader

if TYPE_CHECKING:
    from ..query.contract.cancellation import QueryControl
    from .store_catalog import StoreCatalog


PIECE_ROWS = 16_384
PIECE_BYTES = 512 << 10
"""Exclusive limits of a piece, except for a single event."""

KEPT_SECONDS = 3600.0
PLACES_MAX = 64
"""Maximum number of places per stream from which tails catch up, now or within ``KEPT_SECONDS``."""

POLL_S = 0.2
"""Poll interval for a store that another process writes."""

_PLACE = re.compile(r"([0-9]{1,19})(?:~([0-9]{1,19}))?(?:\.([0-9]{1,19}))?")
_PIN_SUFFIX = "7461696c00000000"
"""Shared by the pins of all tails, so that one can resume another; ``tail`` in hexadecimal."""


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a tail.

    Attributes
    ----------
    position : int
        All commits up to this one were given.
    done : int
        Number of events given of what follows.
    until : int, optional
        What follows ends with this commit, in time order; None: it is one commit.
    """

    position: int
    done: int = 0
    until: int | None = None

    def __str__(self) -> str:
        until = "" if self.until is None else f"~{self.until}"
        return f"{self.position}{until}{f'.{self.done}' if self.done else ''}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Parse a place; raises ``InvalidArgument``."""
        match = _PLACE.fullmatch(text.strip())
        if match is None:
            raise InvalidArgument(
                "a place in a stream is the position of a commit, such as 80, or what a tail gave "
                f"as one, such as 80.3; found {text!r}"
            )
        position, until, done = (None if part is None else int(part) for part in match.groups())
        assert position is not None
        if max(position, until or 0, done or 0) > INT64_MAX or position > (until or INT64_MAX):
            raise InvalidArgument(f"there is no such place in a stream: {text!r}")
        return cls(position, done or 0, until)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some events of a tail, perhaps none, and its place after them.

    ``late`` counts the late events of these commits, also those that the predicate excluded.
    """

    events: pa.RecordBatch
    place: Place
    late: int
    _commits: npt.NDArray[np.int64]
    _ranks: npt.NDArray[np.int64]
    _whole: npt.NDArray[np.bool_]
    _until: int | None

    def places(self) -> pa.Array:
        """The place after each event, as text."""
        until = "" if self._until is None else f"~{self._until}"
        texts = pc.binary_join_element_wise(
            pc.cast(pa.array(self._commits - 1), pa.string()),
            pc.cast(pa.array(self._ranks), pa.string()),
            f"{until}.",
        )
        if not self._whole.any():
            return texts
        return pc.if_else(self._whole, pc.cast(pa.array(self._commits), pa.string()), texts)


class Tail(Closing):
    """Iterator over the events of a stream from a place on, as ``Stream.tail`` returns it.

    Gives non-empty record batches; waits for the next commit, or ends if nothing is new.  For one
    thread at a time.

    Parameters
    ----------
    after : str or int
        A place, or ``"now"``.
    where : str, optional
        SQL predicate on one event.
    columns : sequence of str, optional
        Columns in the order of the result; all by default.
    follow : bool
        Whether to wait at the end.
    control : QueryControl, optional
        Cancellation, checked often.
    """

    def __init__(
        self,
        catalog: StoreCatalog,
        handle: EventStream | StreamReader,
        after: str | int = "now",
        where: str | None = None,
        columns: Sequence[str] | None = None,
        follow: bool = True,
        control: QueryControl | None = None,
    ) -> None:
        self._catalog = catalog
        self._handle = handle
        self._where = where
        self._follow = follow
        self._control = control
        self._schema: StreamSchema = handle.schema
        self._columns = self._schema.select(columns)
        if len(set(self._columns)) != len(self._columns):
            raise InvalidArgument(f"each column can be read once, found {', '.join(self._columns)}")
        self.schema: pa.Schema = pa.schema([self._schema.arrow.field(n) for n in self._columns])
        self._pieces: Iterator[Piece] | None = None
        self._recent: CommitTap | None = None
        self._held: dict[int, Pin] = {}
        self._closed = False
        self._news = threading.Event()
        self._listens = False
        if where is not None:
            self._passing(self._nothing(self._schema))  # a mistake in it is told now
        if isinstance(handle, EventStream):
            self._recent = handle.follow()
        try:
            self.place = Place(self._published()) if after == "now" else Place.parse(str(after))
            self._pieces = self._begin()
        except BaseException:
            self.close()
            raise

    @property
    def position(self) -> str:
        """Place of this tail, as text; pass it as ``after`` to resume."""
        return str(self.place)

    def close(self) -> None:
        """Stop following; may be repeated."""
        if self._closed:
            return
        self._closed = True
        self._pieces = None
        self._let_go(INT64_MAX)
        if isinstance(self._handle, EventStream):
            if self._recent is not None:
                self._handle.unfollow()
            if self._listens:
                self._handle.unsubscribe(self._wake)
        self._news.set()

    def __iter__(self) -> Tail:
        return self

    def __next__(self) -> pa.RecordBatch:
        while not self._closed:
            self._listen()
            self._news.clear()
            piece = self.take()
            if piece is None:
                if not self._follow:
                    break
                self._news.wait(None if self._listens else POLL_S)
            elif piece.events.num_rows:
                return piece.events
        self.close()
        raise StopIteration

    def take(self) -> Piece | None:
        """The next piece; None if nothing is new.  Does not wait for a commit.

        Raises
        ------
        SnapshotExpired
            This place of the stream is no longer known.
        SchemaMismatch
            A column of the tail was dropped or changed.
        StoreClosed
            The store was closed, or the stream dropped.
        """
        while True:
            if self._closed:
                raise StoreClosed("the tail is closed; begin another one where it stood")
            if self._pieces is None:
                self._pieces = self._begin()
                if self._pieces is None:
                    return None
            piece = next(self._pieces, None)
            if piece is not None:
                self.place = piece.place
                return piece
            self._pieces = None

    # ------------------------------------------------------------------ where they come from

    def _begin(self) -> Iterator[Piece] | None:
        """Pieces from this place on; None if nothing is new.  Raises ``SnapshotExpired``."""
        place, published = self.place, self._published()
        if place.until is not None:
            return self._differing(place, self._pin(place.until))
        if place.position > published:
            raise SnapshotExpired(
                f"the stream {self._handle.name!r} has {published} commits, and place {place} lies "
                "beyond them: it is of another copy of the stream, or of commits that were not "
                "durable when the server ended; begin with after=now"
            )
        if not isinstance(self._handle, EventStream):
            self._hold(published)
        if place.position == published:
            return None
        commits = self._commits(place.position, published)
        if commits is not None:
            return self._one_by_one(commits, place, published)
        if place.done:
            raise SnapshotExpired(
                f"place {place} lies within a commit that is no longer remembered by itself; begin "
                f"with after={place.position}, which tells that commit again"
            )
        return self._differing(Place(place.position, 0, published), self._pin(published))

    def _published(self) -> int:
        handle = self._handle
        if isinstance(handle, EventStream):
            if handle.commits.closed:
                raise StoreClosed(
                    f"the stream {handle.name!r} was dropped, or its store was closed: there is "
                    "nothing to follow any more"
                )
        else:
            handle.refresh()
        return handle.snapshot().version

    def _commits(self, after: int, upto: int) -> list[Commit | LargeCommit] | None:
        """The commits in ``(after, upto]``; None if one is no longer held."""
        recent = None if self._recent is None else self._recent.commits(after, upto)
        if recent is not None:
            return recent
        with suppress(FileNotFoundError):  # replaced just now
            since, logged = logged_commits(self._handle.files, self._handle.directory)
            if since <= after:
                return [commit for commit in logged if after < commit.position <= upto]
        return None

    def _pin(self, position: int) -> Pin:
        """Pin a commit for ``KEPT_SECONDS``, shared by all tails."""
        if position in self._held:
            return self._held[position]
        files, directory = self._handle.files, self._handle.directory
        name = f"{position}-{_PIN_SUFFIX}"
        with suppress(SnapshotExpired):
            return load_pin(files, directory, name)
        sweep_pins(files, directory)
        if sum(each.endswith(_PIN_SUFFIX) for each in stored_pins(files, directory)) >= PLACES_MAX:
            raise ResourceLimit(
                f"tails of the stream {self._handle.name!r} are catching up, or have been within "
                f"an hour, from {PLACES_MAX} places, which is the most; begin with after=now"
            )
        keep_pin(files, directory, position=position, seconds=KEPT_SECONDS, suffix=_PIN_SUFFIX)
        return load_pin(files, directory, name)

    def _hold(self, position: int) -> None:
        """Pin the last commit of a stream that another process may change."""
        if position not in self._held:
            files, directory = self._handle.files, self._handle.directory
            with suppress(SnapshotExpired):  # changed just now: the next look finds a later one
                pin = pin_stream(files, directory, position=position, ttl_seconds=KEPT_SECONDS)
                self._held[position] = pin
        self._let_go(self.place.position)

    def _let_go(self, below: int) -> None:
        for position in [each for each in self._held if each < below]:
            lease = self._held.pop(position).lease
            if lease is not None:
                with suppress(OSError):
                    self._handle.files.remove(lease)

    # ---------------------------------------------------------------------------- their pieces

    def _one_by_one(
        self, commits: Sequence[Commit | LargeCommit], place: Place, upto: int
    ) -> Iterator[Piece]:
        """Pieces in the order of commits; adjacent small commits make one piece."""
        schema = self._present()
        group = _Group(schema)
        for commit in commits:
            rank = 0  # of the events of this commit that went by
            done = place.done if commit.position == place.position + 1 else 0
            group.late += commit.late
            following: pa.RecordBatch | None = None
            for batch in (*sliced(commit.batches(self._check)), None):
                if following is not None:
                    first, rank = rank, rank + following.num_rows
                    if rank > done:
                        skip = max(0, done - first)
                        group.add(
                            commit.position, first + skip, following.slice(skip), batch is None
                        )
                    if group.full:
                        yield self._piece(group, schema, group.place)
                        group = _Group(schema)
                following = batch
        yield self._piece(group, schema, Place(upto))

    def _differing(self, place: Place, after: Pin) -> Iterator[Piece]:
        """Pieces of the difference between two commits, in time order."""
        before = None if place.position == 0 else self._pin(place.position)
        return self._between(place, before, after)

    def _between(self, place: Place, before: Pin | None, after: Pin) -> Iterator[Piece]:
        schema = self._present()
        files = self._handle.files
        names = self._columns if self._where is None else after.outline.schema.names
        rank = 0
        for part in new_ranges(files, before, after):
            if rank + part.events <= place.done:
                rank += part.events
                continue
            events = new_events(files, before, after, part.start, part.end, names, self._check)
            for batch in sliced(events):
                first, rank = rank, rank + batch.num_rows
                if rank <= place.done:
                    continue
                skip = max(0, place.done - first)
                group = _Group(schema, place.until)
                group.add(place.position + 1, first + skip, batch.slice(skip), False)
                yield self._piece(group, schema, Place(place.position, rank, place.until))
        yield self._piece(_Group(schema), schema, Place(after.position))

    def _piece(self, group: _Group, schema: StreamSchema, place: Place) -> Piece:
        events, commits, ranks, whole = group.joined(self._columns)
        if self._where is not None and group.rows:
            passing = self._passing(group.events(schema.names))
            if passing.true_count < group.rows:
                chosen = passing.to_numpy(zero_copy_only=False)
                events = events.filter(passing)
                commits, ranks, whole = commits[chosen], ranks[chosen], whole[chosen]
        return Piece(events, place, group.late, commits, ranks, whole, group.until)

    def _passing(self, events: pa.RecordBatch) -> pa.BooleanArray:
        assert self._where is not None
        schema = self._handle.schema
        snapshot = BatchSnapshot(schema, _conformed(events, schema, schema.names))
        engine = self._catalog.engine
        return engine.passing(self._handle.name, snapshot, self._where, self._control)

    def _present(self) -> StreamSchema:
        """The stream's schema; raises ``SchemaMismatch`` if it lacks a column of the tail."""
        schema = self._handle.schema
        if schema is not self._schema:
            for field in self.schema:
                if field.name not in schema.names or schema.arrow.field(field.name) != field:
                    raise SchemaMismatch(
                        f"the column {field.name!r} of the stream {self._handle.name!r} is gone or "
                        "has changed since this tail began; begin another one where it stood"
                    )
            self._schema = schema
        return schema

    @staticmethod
    def _nothing(schema: StreamSchema) -> pa.RecordBatch:
        return _conformed(pa.RecordBatch.from_pylist([], pa.schema([])), schema, schema.names)

    def _check(self) -> None:
        if self._closed:
            raise StoreClosed("the tail is closed")
        if self._control is not None:
            self._control.check()

    def _listen(self) -> None:
        """Subscribe to the writer's commits; a stream of another process is polled."""
        if not self._listens and isinstance(self._handle, EventStream):
            self._handle.subscribe(self._wake)
            self._listens = True

    def _wake(self, _: Any) -> None:
        self._news.set()


class _Group:
    """Events of adjacent commits, collected for one piece."""

    def __init__(self, schema: StreamSchema, until: int | None = None) -> None:
        self._schema = schema
        self.until = until
        self.late = 0
        self.rows = 0
        self._bytes = 0
        self._batches: list[pa.RecordBatch] = []
        self._commits: list[tuple[int, int, bool]] = []
        self.place = Place(0)

    @property
    def full(self) -> bool:
        return self.rows >= PIECE_ROWS or self._bytes >= PIECE_BYTES

    def add(self, position: int, first: int, events: pa.RecordBatch, whole: bool) -> None:
        """Add events of a commit from rank ``first`` on; ``whole``: up to its last."""
        self._batches.append(events)
        self._commits.append((position, first, whole))
        self.rows += events.num_rows
        self._bytes += events.nbytes
        self.place = Place(position) if whole else Place(position - 1, first + events.num_rows)

    def events(self, names: Sequence[str]) -> pa.RecordBatch:
        batches = [_conformed(batch, self._schema, names) for batch in self._batches]
        if not batches:
            return _conformed(pa.RecordBatch.from_pylist([], pa.schema([])), self._schema, names)
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def joined(
        self, names: Sequence[str]
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Columns, and per event: its commit, its rank from 1, whether it is the commit's last."""
        sizes = np.array([batch.num_rows for batch in self._batches], np.int64)
        commits = np.array(self._commits, np.int64).reshape(-1, 3)
        ends = np.cumsum(sizes)
        ranks = np.arange(1, self.rows + 1) + np.repeat(commits[:, 1] - (ends - sizes), sizes)
        whole = np.zeros(self.rows, np.bool_)
        whole[ends[commits[:, 2] > 0] - 1] = True
        return self.events(names), np.repeat(commits[:, 0], sizes), ranks, whole


def sliced(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Split batches into non-empty pieces within the limits."""
    for batch in batches:
        rows = batch.num_rows
        step = max(1, min(PIECE_ROWS, rows * PIECE_BYTES // max(1, batch.nbytes)))
        for first in range(0, rows, step):
            yield batch.slice(first, step)


def _conformed(batch: pa.RecordBatch, schema: StreamSchema, names: Sequence[str]) -> pa.RecordBatch:
    """Columns of a schema from a batch; defaults for columns newer than the batch."""
    fields = pa.schema([schema.arrow.field(name) for name in names])
    if batch.schema.equals(fields):
        return batch
    present = batch.schema.names
    columns = [
        batch.column(present.index(field.name))
        if field.name in present
        else schema.attribute(field.name).missing(batch.num_rows)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(columns, schema=fields)
