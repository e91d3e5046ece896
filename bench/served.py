"""A server on loopback and clients of its feeds as separate processes.

A ``Follower`` records arrival times (``time.monotonic``, system-wide) and is parsed afterwards.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import pyarrow as pa

START_S = 120
FOLLOWING = """
import socket, sys, time
host, port, path, out = sys.argv[1:]
line = socket.create_connection((host, int(port)))
line.sendall(f"GET {path} HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n".encode())
print("ready", flush=True)
with open(out, "wb", buffering=0) as file:
    while piece := line.recv(1 << 20):
        file.write(b"%.6f %d\\n" % (time.monotonic(), len(piece)) + piece)
"""


def wait_until_ready(line: http.client.HTTPConnection) -> None:
    while True:
        line.request("GET", "/readyz")
        answer = line.getresponse()
        answer.read()
        if answer.status == 200:
            return
        time.sleep(0.05)


class Served:
    """``chronicle serve`` over a store; ``seconds`` is its start-up time."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._said: deque[str] = deque(maxlen=20)

    def __enter__(self) -> Served:
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "chronicle.cli", "serve", "--port", "0"],
            env={**os.environ, "CHRONICLE_STORE": str(self._store)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert self.process.stderr is not None
        lines = iter(self.process.stderr.readline, b"")
        for line in lines:
            self._said.append(line.decode().rstrip())
            found = re.search(r"serves .*http://([\w.]+):(\d+)", self._said[-1])
            if found:
                break
        else:
            raise RuntimeError("\n".join(["the server ended", *self._said]))
        self.seconds = time.perf_counter() - begun
        self.host, self.port = found[1], int(found[2])
        self._drain = threading.Thread(target=lambda: self._said.extend(map(bytes.decode, lines)))
        self._drain.start()
        self._line = http.client.HTTPConnection(self.host, self.port, timeout=START_S)
        wait_until_ready(self._line)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._line.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self._drain.join()

    def ask(self, path: str, body: Any = None) -> Any:
        """POST a JSON body or a batch as an Arrow stream; GET without a body."""
        headers, data = {"Content-Type": "application/json"}, None
        if isinstance(body, pa.RecordBatch):
            headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, body.schema) as writer:
                writer.write_batch(body)
            data = sink.getvalue()
        elif body is not None:
            data = json.dumps(body).encode()
        self._line.request("GET" if data is None else "POST", path, data, headers)
        answer = self._line.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{path}: {answer.status} {text.decode()}")
        return json.loads(text)

    @property
    def memory(self) -> int:
        """Bytes of the server's own memory, without mapped files, which the system can reclaim."""
        _, resident, of_files, *_ = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return (int(resident) - int(of_files)) * os.sysconf("SC_PAGE_SIZE")

    @contextlib.contextmanager
    def follower(self, query: str) -> Iterator[Follower]:
        """Follow a live query during the block."""
        with tempfile.NamedTemporaryFile(prefix="chronicle-bench-") as file:
            path = f"/v1/live/{urllib.parse.quote(query)}/rows"
            process = subprocess.Popen(
                [sys.executable, "-c", FOLLOWING, self.host, str(self.port), path, file.name],
                stdout=subprocess.PIPE,
            )
            assert process.stdout is not None
            process.stdout.readline()
            try:
                yield Follower(file)  # type: ignore[arg-type]
            finally:
                process.kill()
                process.communicate()


class Follower:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def rows(self) -> list[tuple[float, dict[str, Any]]]:
        """Each row with the arrival time of its last byte."""
        self._file.seek(0)
        found: list[tuple[float, dict[str, Any]]] = []
        left = b""
        while head := self._file.readline():
            came, length = head.split()
            *whole, left = (left + self._file.read(int(length))).split(b"\n\n")
            for event in whole:
                if b"event: row\n" in event:
                    data = event.partition(b"\ndata: ")[2]
                    found.append((float(came), json.loads(data)))
        return found
