"""A proxy in front of a service: holds up what it passes on, and cuts its connections."""

from __future__ import annotations

import contextlib
import socket
import threading


class SlowProxy:
    """Passes bytes on to an address.

    Attributes
    ----------
    go_on : threading.Event
        While it is not set, nothing is passed on.
    holds : threading.Event
        Set as soon as something has been held up.
    down : bool
        Connections are refused by being closed, and those that there are are cut.
    """

    def __init__(self, host: str, port: int) -> None:
        self.go_on, self.holds = threading.Event(), threading.Event()
        self.go_on.set()
        self.passed = 0
        self._down = False
        self._to = (host, port)
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname()[:2])
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def down(self) -> bool:
        return self._down

    @down.setter
    def down(self, value: bool) -> None:
        self._down = value
        if value:
            for connection in list(self._open):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            if self._down:
                near.close()
                continue
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection(self._to) as far:
            self._open |= {near, far}
            back = threading.Thread(target=self._pass, args=(far, near), daemon=True)
            back.start()
            self._pass(near, far)
            back.join()
            self._open -= {near, far}

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                if not self.go_on.is_set():
                    self.holds.set()
                    self.go_on.wait()
                target.sendall(piece)
                self.passed += len(piece)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.down = True
        self.go_on.set()
