"""A client of server-sent events: reads as browsers do (WHATWG HTML 9.2.6), and reconnects."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any, NamedTuple

from chronicle.tests.patience import PATIENCE_S, wait_until


class Event(NamedTuple):
    """What a browser would dispatch."""

    kind: str
    id: str
    data: Any


def parse(lines: Iterator[str]) -> Iterator[Event]:
    """Events of a stream of lines; a comment is told as one of kind ``:``."""
    kind, last_id, data = "", "", []
    for line in lines:
        if line == "":
            if data:
                text = "\n".join(data)
                yield Event(kind or "message", last_id, json.loads(text))
            kind, data = "", []
        elif line.startswith(":"):
            yield Event(":", last_id, None)
        else:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                kind = value
            elif field == "data":
                data.append(value)
            elif field == "id":
                last_id = value


class Source:
    """Follows an address in a thread until told to stop; remembers what came.

    Parameters
    ----------
    reconnect : bool
        Whether to connect again with Last-Event-ID when the answer ends.
    receive_bytes : int, optional
        Size of the socket's buffer.
    """

    def __init__(
        self,
        url: str,
        *,
        reconnect: bool = False,
        receive_bytes: int | None = None,
        **headers: str,
    ) -> None:
        self.url = url
        self.events: list[Event] = []
        self.status: int | None = None
        self.problem: Any = None
        self.connections = 0
        self.last_id: str | None = None
        self._headers = headers
        self._reconnect = reconnect
        self._receive_bytes = receive_bytes
        self._flows = threading.Event()
        self._flows.set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._socket: socket.socket | None = None
        self._thread.start()

    def _run(self) -> None:
        while True:
            with contextlib.suppress(http.client.HTTPException, OSError):
                self._connect()
            if not self._reconnect or self._stop.is_set() or self.status not in (200, None):
                return
            time.sleep(0.02)

    def _connect(self) -> None:
        headers = dict(self._headers)
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
        parts = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            if self._receive_bytes is not None:
                connection.sock = socket.socket()
                connection.sock.settimeout(PATIENCE_S)
                size = self._receive_bytes
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
                connection.sock.connect((parts.hostname, parts.port))
            connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
            self._socket = connection.sock
            response = connection.getresponse()
            self.connections += 1
            self.status = response.status
            if response.status != 200:
                self.problem = json.loads(response.read())
                return
            for event in parse(line.decode().rstrip("\n") for line in response):
                self.events.append(event)
                self.last_id = event.id or self.last_id
                self._flows.wait()
                if self._stop.is_set():
                    return

    def stall(self) -> None:
        """Read no more, as a page in the background does, until :meth:`go_on`."""
        self._flows.clear()

    def go_on(self) -> None:
        self._flows.set()

    def drop(self) -> None:
        """Lose the connection, as a network would."""
        with contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def rows(self) -> list[Any]:
        return [event.data for event in self.events if event.kind == "row"]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def wait(self, rows: int) -> list[Any]:
        """The rows, once there are so many."""
        wait_until(lambda: len(self.rows) >= rows or not self._thread.is_alive(), f"{rows} rows")
        assert len(self.rows) >= rows, (len(self.rows), rows, self.status, self.problem)
        return self.rows

    def ended(self) -> bool:
        self._thread.join(PATIENCE_S)
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()
        self._flows.set()
