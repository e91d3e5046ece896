"""Recently dropped streams: a request that fails during a DROP fails because of it.

Purpose
    A request that is at work on a stream while another one drops it may meet the drop anywhere: a
    directory that is gone, a handle that is closed, a file without its neighbour.  None of that is
    worth a 500.  :class:`Drops` knows which streams were dropped since a request came.

Guarantee
    Only what would have been answered 500 is answered as a missing stream, and only when that
    stream was being dropped while the request ran.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Scope

from ...errors import StreamNotFound
from ..http.problems import as_problem
from ..http.request_head import SLASH

__all__ = ["BEGUN", "Drops"]

BEGUN = "chronicle.begun"
"""Key of the scope: when the request came, by the monotonic clock."""

KEEP_S = 3600.0


class Drops:
    """When streams were dropped; from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._ended: dict[str, float] = {}

    @contextmanager
    def dropping(self, stream: str) -> Iterator[None]:
        """Around the drop of a stream, whether it happens or not."""
        with self._guard:
            self._ended[stream] = float("inf")
        try:
            yield
        finally:
            now = time.monotonic()
            with self._guard:
                self._ended[stream] = now
                for old in [name for name, at in self._ended.items() if at < now - KEEP_S]:
                    del self._ended[old]

    def explain(self, scope: Scope, error: Exception) -> Exception:
        """The error that a request shall be answered with: this one, or that its stream is gone."""
        if as_problem(error).status != 500:
            return error
        begun: float = scope[BEGUN]
        given = scope.get("path_params", {}).get("stream")
        name = None if given is None else given.replace(SLASH, "/")
        with self._guard:
            gone = any(at >= begun for stream, at in self._ended.items() if name in (None, stream))
        if not gone:
            return error
        what = "a stream" if name is None else f"the stream {name!r}"
        return StreamNotFound(f"{what} was dropped while the request was at work; send it again")
