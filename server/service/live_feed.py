"""The results and retractions of a live query as a feed: every ``_seq`` after the client's, once
and in order, also after a restart, since a result and its ``_seq`` are one commit.  410 where
results after it fell to the sink's retention, and for a ``_seq`` of another store or an earlier
live query.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...api.tailing import sliced
from ...errors import SnapshotExpired, StoreClosed
from ...live.query import LiveQuery
from ...live.sink import QUERY, SEQUENCE, Sink
from ...store.recent import Commit
from ..http.jsonable import jsonable
from .feeds import Feed, format_of

__all__ = ["LiveFeed"]


class LiveFeed(Feed):
    def __init__(self, query: LiveQuery, after: int, format: str, **written: bool) -> None:
        self._query = query
        self._sink: Sink = query.sink
        self.stream = query.sink.stream
        _check_kept(self._sink, query.definition.name, after)
        self.format = format_of(format, self.stream.schema.arrow, **written)
        self.rows = 0
        self._after = after
        self._position: int | None = None
        self._pieces: Iterator[pa.RecordBatch] | None = None
        self._said: object = None
        self._recent = self.stream.follow()

    def take(self) -> bytes | None:
        while True:
            if self.stream.commits.closed:
                raise StoreClosed(
                    f"the live query {self._query.definition.name!r} was dropped, or the store was "
                    "closed: there is nothing to follow any more"
                )
            upto = self.stream.snapshot().version
            if self._pieces is None:
                if upto == self._position:
                    return None
                self._pieces = sliced(self._behind(upto))
                self._upto = upto
            rows = next(self._pieces, None)
            if rows is None:
                self._pieces, self._position = None, self._upto
                continue
            self._after = rows.column("_seq")[-1].as_py()
            self.rows += rows.num_rows
            ids = partial(pc.cast, rows.column("_seq"), pa.string())
            return self.format.rows(ids, self._place, rows)

    def _behind(self, upto: int) -> Iterator[pa.RecordBatch]:
        """The results after the last row sent; perhaps more than up to commit ``upto``."""
        commits = None if self._position is None else self._recent.between(self._position, upto)
        if commits is None or not all(isinstance(commit, Commit) for commit in commits):
            yield from self._sink.rows(self._after)
            return
        batches = [batch for commit in commits for batch in commit.batches()]
        if not batches:
            return
        wanted = pc.field("_seq") > self._after
        if self._sink.shared:
            wanted &= pc.field(QUERY) == self._sink.query
        found = pa.Table.from_batches(batches).filter(wanted).sort_by("_seq")
        yield from found.combine_chunks().to_batches()

    @property
    def _place(self) -> str:
        return str(self._after)

    @property
    def unmarked(self) -> bool:
        return self._said != self._state()

    def mark(self) -> bytes:
        self._said = self._state()
        return self.format.mark(self._place, self._told())

    def beat(self) -> bytes:
        return self.format.beat(self._place, self._told())

    def _state(self) -> object:
        query = self._query
        return query.mark.watermark, query.error, query.definition.paused

    def _told(self) -> dict[str, Any]:
        status = self._query.status()
        names = ("state", "watermark", "lag_events", "lag_ms", "error")
        return {"seq": self._after, **{name: jsonable(status[name]) for name in names}}

    def close(self) -> None:
        self.stream.unfollow()


def _check_kept(sink: Sink, name: str, after: int) -> None:
    snapshot = sink.stream.snapshot()
    kept = snapshot.aggregate(["_seq"])["_seq"]
    newest = max(int(sink.stream.marks().get(SEQUENCE, 1)) - 1, int(kept.max or 0))
    if after > newest:
        raise SnapshotExpired(
            f"the live query {name!r} has put out {newest} rows, and _seq {after} lies behind "
            "them: it was made anew, or this is another store; begin with after=0"
        )
    if after and snapshot.state.dropped and after + 1 < int(kept.min or newest + 1):
        raise SnapshotExpired(
            f"rows of the live query {name!r} behind _seq {after} were dropped by the retention of "
            "its sink; begin with after=0 for those that are kept"
        )
