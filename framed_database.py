"""Frames beside streams, for Python: a part of :class:`~chronicle.database.Database`.

Purpose
    :meth:`FramedDatabase.register` lets SQL name a table of the program: a data frame, an Arrow
    table, a dataset of files.  It is joined with streams, aggregated, matched, and appended by
    INSERT ... SELECT.

Guarantee
    Frames are seen by the queries of this object and by nothing else: not by a server over it, not
    by live queries, not by Spark.  A registered frame is found before a stream of its name, so that
    what others create does not change what a query of this program means.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import InvalidArgument
from .ownership import LOADING
from .suggestion import did_you_mean

if TYPE_CHECKING:
    from .query.contract.frames import Frame

__all__ = ["FramedDatabase"]


class FramedDatabase:
    """What a database offers of frames."""

    def __init__(self) -> None:
        self._frames: dict[str, Frame] = {}
        self._frames_guard = threading.Lock()
        self._served = False

    def views(self) -> Mapping[str, Any]:
        """All views by name."""
        raise NotImplementedError

    def streams(self) -> list[str]:
        """Names of all streams, sorted."""
        raise NotImplementedError

    @property
    def frames(self) -> Mapping[str, Frame]:
        """What is registered, by name in lower case."""
        return self._frames

    def register(self, name: str, frame: Any) -> None:
        """Let SQL name a table of this program as if it were a stream.

        Parameters
        ----------
        name : str
            In SQL, in any case; one that was registered before is replaced.
        frame : Table, RecordBatch, RecordBatchReader, Dataset, data frame or list of dicts
            Of pyarrow, pandas or polars.  A reader is read at once, a dataset by each query.  Named
            levels of a pandas index become columns.  Times with a zone are seen in UTC.

        Raises
        ------
        InvalidArgument
            When a stream has that name, or the frame is no table.
        InvalidData
            When Arrow data is not sound.

        Examples
        --------
        >>> db.register("fleet", pandas.read_csv("fleet.csv"))
        >>> db.sql("SELECT * FROM flights JOIN fleet USING (icao24)").df()
        """
        with LOADING:
            from .query.contract.frames import frame_of

        if not isinstance(name, str) or not name or "\x00" in name:
            raise InvalidArgument(f"a frame is registered under a name, found {name!r}")
        if self._served:
            raise InvalidArgument(
                "frames are for the program that opens a store, and a server is over this one; "
                "open the store once more with mode='r' for queries of the program's own"
            )
        known = (*self.streams(), *self.views())
        taken = [other for other in known if other.lower() == name.lower()]
        if taken:
            raise InvalidArgument(
                f"there is a stream or view {taken[0]!r}; give the frame another name"
            )
        made = frame_of(name, frame)
        with self._frames_guard:
            self._frames = {**self._frames, name.lower(): made}

    def unregister(self, name: str) -> None:
        """Forget a frame, and let go of its data; raises :class:`InvalidArgument`."""
        with self._frames_guard:
            frame = self._frames.get(name.lower())
            if frame is None:
                hint = did_you_mean(name, self._frames)
                raise InvalidArgument(f"no frame {name!r} is registered{hint}")
            self._frames = {key: f for key, f in self._frames.items() if f is not frame}
        frame.forget()

    def serve_only_streams(self) -> None:
        """Have no frames from now on: others ask than the program that registered them."""
        with self._frames_guard:
            self._served, self._frames = True, {}
