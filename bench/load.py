"""Load generator for small requests on loopback, at full speed or a fixed rate.

A separate program with one thread and prebuilt requests.  A status other than 200 ends the run.  At
a fixed rate a request's time starts when it was due.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

AHEAD = 100
"""Commits sent before their acknowledgement."""


@dataclass(frozen=True)
class Load:
    """Answers per second, and latency percentiles in seconds."""

    rate: float
    p50: float
    p99: float


def drive(
    port: int,
    requests: list[bytes],
    connections: int,
    seconds: float,
    rate: float | None = None,
) -> Load:
    """Send requests in turn, from another process; ``rate`` is per second, by default unlimited."""
    job = {
        "port": port,
        "requests": [each.decode() for each in requests],
        "connections": connections,
        "seconds": seconds,
        "rate": rate,
    }
    return Load(**_program(job))


def acknowledged(port: int, stream: str, commits: list[bytes], size: int, seconds: float) -> float:
    """Durable events per second over one connection with ``ack=each``."""
    job = {
        "port": port,
        "stream": stream,
        "commits": [each.decode() for each in commits],
        "size": size,
        "seconds": seconds,
    }
    told = _program(job)
    assert isinstance(told, float)
    return told


def _program(job: dict[str, Any]) -> Any:
    done = subprocess.run(
        [sys.executable, __file__], input=json.dumps(job).encode(), capture_output=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    return json.loads(done.stdout)


class _Connection:
    def __init__(self, port: int) -> None:
        self.line = socket.create_connection(("127.0.0.1", port))
        self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.begun = 0.0
        self._came = b""

    def send(self, request: bytes, begun: float) -> None:
        self.begun = begun
        self.line.sendall(request)

    def answered(self) -> bool:
        piece = self.line.recv(1 << 16)
        if not piece:
            raise RuntimeError("the server closed a connection")
        self._came += piece
        head, end, body = self._came.partition(b"\r\n\r\n")
        if not end:
            return False
        lower = head.lower()
        at = lower.index(b"content-length:") + 15
        length = int(lower[at:].split(b"\r\n", 1)[0])
        if len(body) < length:
            return False
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(self._came.decode())
        self._came = b""
        return True


def _run(
    port: int, requests: list[bytes], connections: int, seconds: float, rate: float | None
) -> Load:
    poll = select.epoll()
    lines = {}
    for _ in range(connections):
        made = _Connection(port)
        lines[made.line.fileno()] = made
        poll.register(made.line, select.EPOLLIN)
    free = deque(lines.values())
    waits: list[float] = []
    sent = 0
    begun = now = time.perf_counter()
    end = begun + seconds
    while now < end or len(free) < connections:
        while free and now < end:
            due = now if rate is None else begun + sent / rate
            if due > now:
                break
            free.popleft().send(requests[sent % len(requests)], due)
            sent += 1
        timeout = 1.0 if rate is None or now >= end else max(0.0, begun + sent / rate - now)
        for number, _ in poll.poll(timeout):
            line = lines[number]
            if line.answered():
                waits.append(time.perf_counter() - line.begun)
                free.append(line)
        now = time.perf_counter()
    waits.sort()
    found = len(waits)
    return Load(found / (now - begun), waits[found // 2], waits[min(found - 1, found * 99 // 100)])


def _flow(port: int, stream: str, commits: list[bytes], size: int, seconds: float) -> float:
    line = socket.create_connection(("127.0.0.1", port))
    line.sendall(
        f"POST /v1/streams/{stream}/events?ack=each&commit_events={size} HTTP/1.1\r\n"
        "Host: localhost\r\nContent-Type: application/x-ndjson\r\n"
        "Transfer-Encoding: chunked\r\n\r\n".encode()
    )
    chunks = [b"%x\r\n%s\r\n" % (len(each), each) for each in commits]
    sent = done = 0
    begun = now = time.perf_counter()
    while now < begun + seconds:
        while sent < done + AHEAD:
            line.sendall(chunks[sent % len(chunks)])
            sent += 1
        piece = line.recv(1 << 16)
        if not piece or b'"$error"' in piece:
            raise RuntimeError(piece.decode())
        done += piece.count(b'"version"')
        now = time.perf_counter()
    line.close()
    return done * size / (now - begun)


if __name__ == "__main__":
    job = json.load(sys.stdin)
    if "commits" in job:
        job["commits"] = [each.encode() for each in job["commits"]]
        print(json.dumps(_flow(**job)))
    else:
        job["requests"] = [each.encode() for each in job["requests"]]
        print(json.dumps(vars(_run(**job))))
