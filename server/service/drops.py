"""Recently dropped streams, to explain requests that fail because of a concurrent DROP: an error
that would be answered 500 becomes "stream not found" if the stream was being dropped meanwhile.
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
"""Key of the ASGI scope: arrival of the request, monotonic seconds."""

KEEP_S = 3600.0


class Drops:
    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._ended: dict[str, float] = {}

    @contextmanager
    def dropping(self, stream: str) -> Iterator[None]:
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
        """The error to answer with: ``error``, or that the stream is gone."""
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
