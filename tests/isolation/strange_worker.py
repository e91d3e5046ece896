"""A worker that misbehaves in the way that it is told; an entry module for tests."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import struct
import time
from dataclasses import asdict
from typing import Any

FOREVER_S = 1e6


def prepare() -> None:
    """Nothing to load."""


def serve(channel: Any, spec: dict[str, Any], confined: Any) -> None:
    """Say that it is ready, then do as ``spec["mode"]`` says for every job."""
    channel.send({"ready": asdict(confined)})
    while True:
        job, _ = channel.receive()
        asked = {**job, **spec}
        MODES[asked["mode"]](channel, asked)


def _raw(*pieces: bytes) -> Any:
    def answer(channel: Any, spec: dict[str, Any]) -> None:
        for piece in pieces:
            channel._socket.sendall(piece)
        time.sleep(FOREVER_S)

    return answer


def _say(*messages: Any) -> Any:
    def answer(channel: Any, spec: dict[str, Any]) -> None:
        for message in messages:
            channel.send(message, [b"x" * 64])
        time.sleep(FOREVER_S)

    return answer


def _allocate(channel: Any, spec: dict[str, Any]) -> None:
    held = []
    with contextlib.suppress(MemoryError):
        while True:
            held.append(bytearray(16 << 20))
    size = len(held) << 4
    held.clear()
    channel.send({"mib": size})


def _grow(channel: Any, spec: dict[str, Any]) -> None:
    held = bytearray(spec["mib"] << 20)
    for at in range(0, len(held), 4096):
        held[at] = 1
    time.sleep(FOREVER_S)


def _try(attempt: Any) -> str:
    try:
        return f"done: {attempt()!r}"
    except BaseException as error:
        return type(error).__name__


def _escape(channel: Any, spec: dict[str, Any]) -> None:
    own = os.path.join(spec["directory"], "own") if spec["directory"] else "/tmp/own"

    def write(path: str) -> None:
        with open(path, "w") as file:
            file.write("x")

    def read(path: str) -> str:
        with open(path) as file:
            return file.read(1)

    def clone() -> None:
        if os.fork() == 0:
            os._exit(0)

    libc = ctypes.CDLL(None, use_errno=True)
    channel.send(
        {
            "read /etc/passwd": _try(lambda: read("/etc/passwd")),
            "read the store": _try(lambda: read(spec["secret"])),
            "list /tmp": _try(lambda: os.listdir("/tmp")),
            "write /tmp": _try(lambda: write(f"/tmp/strange-{os.getpid()}")),
            "write own": _try(lambda: write(own)),
            "socket": _try(lambda: socket.socket()),
            "unix socket": _try(lambda: socket.socketpair()),
            "fork": _try(clone),
            "exec": _try(lambda: os.execv("/bin/true", ["true"])),
            "signal the owner": _try(lambda: os.kill(spec["owner"], 0)),
            "signal the fork_server": _try(lambda: os.kill(os.getppid(), signal.SIGKILL)),
            "memory file": _try(lambda: os.memfd_create("x")),
            "ptrace": libc.ptrace(16, spec["owner"], 0, 0),
            "files": [n for n in range(256) if _try(lambda n=n: os.fstat(n)).startswith("done")],
            "secrets": [name for name in os.environ if "TOKEN" in name or "SECRET" in name],
        }
    )


def _die(channel: Any, spec: dict[str, Any]) -> None:
    os.abort()


_HEADER = struct.Struct("=4sIQ")
_BATCH = {"schema": [["a", "string", True]], "hugeints": [], "jsons": []}
MODES = {
    "noise": _raw(os.urandom(64)),
    "long message": _raw(_HEADER.pack(b"CHR1", 0xFFFFFFFF, 0)),
    "long data": _raw(_HEADER.pack(b"CHR1", 2, 1 << 60), b"{}"),
    "no json": _raw(_HEADER.pack(b"CHR1", 4, 0), b"\x80\x04N."),
    "deep json": _raw(_HEADER.pack(b"CHR1", 200_000, 0), b"[" * 200_000),
    "no object": _say([1, 2]),
    "nothing": _say({}),
    "bad schema": _say({"schema": "x", "hugeints": []}),
    "bad positions": _say({**_BATCH, "hugeints": [5]}),
    "bad batch": _say({**_BATCH, "batch": [3, [[3, [None, [0, 16], [0, 1 << 40]], []]]]}),
    "bad offsets": _say({**_BATCH, "batch": [3, [[3, [None, [0, 16], [0, 64]], []]]]}),
    "bad error": _say({"error": ["os.system", 3]}),
    "bad scan": _say({"scan": 1, "relation": "nosuch", "columns": [], "needed": []}),
    "bad credit": _say({"next": -1}),
    "cut": lambda channel, spec: (channel._socket.sendall(b"CHR1\x10"), os._exit(3)),
    "die": _die,
    "hang": lambda channel, spec: time.sleep(FOREVER_S),
    "stop": lambda channel, spec: channel.close(),
    "allocate": _allocate,
    "grow": _grow,
    "escape": _escape,
}
