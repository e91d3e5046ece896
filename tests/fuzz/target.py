"""A server under attack, and a watcher beside it.

Purpose
    Fuzzers send statements and bodies to a real ``chronicle serve`` process and ask one question
    after each: did anything happen that cost more than its own answer?  :class:`Target` holds the
    process, asks, and answers with the *faults*:

    ===============  ===========================================================================
    died             the process ended, or its workers were not replaced
    500              an answer with a status of 500 or 502
    leaked           an answer with a value or a name of the stream that the token does not reach,
                     a path of this machine, or a native or Python stack
    slow             no answer at all
    memory           anonymous memory of the process and its children above base + 2 GiB
    changed          statements whose answers are known answer otherwise, streams differ, or a file
                     appeared in the working directory
    ===============  ===========================================================================

Guarantee
    A server that died or took too much memory is ended and started again on the same store, so
    that a run collects faults instead of stopping at the first.  Loopback only.

Long runs
    ``CHRONICLE_FUZZ=100000 CHRONICLE_SEED=7 pytest -s --timeout 0 tests/fuzz`` sends so many
    requests of each kind, in *pieces* of :data:`PIECE` (:func:`pieces`).  Each piece is made from
    the seed and its own number, so that a run that was stopped goes on with
    ``CHRONICLE_FUZZ_FROM=37``, and a fault comes again with the numbers that are printed for it:
    ``CHRONICLE_FUZZ_FROM=37 CHRONICLE_FUZZ=19000`` is piece 37 alone.

Limits
    What is told as *memory* names the request that was running; with several clients at once, all
    of them.  How long /healthz took at most is printed with each piece, and not judged.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

import chronicle
from chronicle.server import create_token
from chronicle.tests.fuzz.border_streams import TYPES as BORDERS
from chronicle.tests.fuzz.border_streams import create_border_streams
from chronicle.tests.patience import PATIENCE_S, wait_until

__all__ = [
    "CLIENTS",
    "COUNT",
    "HIDDEN",
    "HOUR_MS",
    "NIGHTLY",
    "Fault",
    "Reply",
    "Target",
    "pieces",
    "seed",
]

PROGRAM = """
import sys
from chronicle.server import load_settings, serve
serve(load_settings(store=sys.argv[1], port=0))
"""
COUNT = int(os.environ.get("CHRONICLE_FUZZ", "300"))
"""Requests of a random run, of each kind."""
PIECE = 500
FIRST = int(os.environ.get("CHRONICLE_FUZZ_FROM", "0"))
"""Piece with which a run begins."""
CLIENTS = int(os.environ.get("CHRONICLE_FUZZ_CLIENTS", "4"))
"""Requests at once."""
NIGHTLY = "CHRONICLE_FUZZ" in os.environ
SECRET = "topsecretvalue"
HIDDEN = "vault_of_others"
MEMORY_ABOVE_BASE = 2 << 30
HOUR_MS = 3_600_000
STACK = re.compile(r"Traceback|site-packages|duckdb::|libduckdb|/proc/|0x[0-9a-f]{8,}")

CANARIES = {
    "SELECT upper('a') AS v": "A",
    "SELECT lower('A') AS v": "a",
    "SELECT abs(-2) AS v": 2,
    "SELECT length('four') AS v": 4,
    "SELECT concat('a', 'b') AS v": "ab",
    "SELECT coalesce(NULL, 3) AS v": 3,
    "SELECT list_sum([1, 2]) AS v": 3,
    "SELECT 10 // 3 AS v": 3,
    "SELECT count(*) AS v FROM s": 40,
    "SELECT sum(x) AS v FROM s WHERE k = 'a'": 190.0,
    "SELECT max(window_start) AS v FROM TUMBLE(s, t, 10)": 30,
    "SELECT count(*) AS v FROM s MATCH_RECOGNIZE (ORDER BY t PATTERN (A B)"
    " DEFINE A AS k = 'a', B AS k = 'b')": 20,
}
"""Statements and the one value that each of them has always had."""


def seed(default: int = 0) -> int:
    """Of the generators: ``CHRONICLE_SEED``, or the one of the short run."""
    return int(os.environ.get("CHRONICLE_SEED", default))


def pieces(kind: str, target: Target) -> Iterator[tuple[int, int]]:
    """The pieces of a run: a seed and a number of requests for each; tells how far it is."""
    last = -(-COUNT // PIECE)
    for piece in range(FIRST, last):
        begun, known = time.monotonic(), len(target.faults)
        size = min(PIECE, COUNT - piece * PIECE)
        yield (seed() << 32) + piece, size
        if NIGHTLY:
            rate = size / (time.monotonic() - begun)
            for fault in target.faults[known:]:
                print(f"  {fault}", flush=True)
            print(
                f"{kind}: piece {piece} of {last} done, {rate:.0f} requests/s, "
                f"{len(target.faults)} faults so far (seed {seed()}), "
                f"/healthz in at most {target.health_s:.1f} s",
                flush=True,
            )


@dataclass(frozen=True)
class Fault:
    """Something that a request did to others."""

    kind: str
    what: str
    requests: tuple[str, ...]

    def __str__(self) -> str:
        shown = "\n    ".join(request[:2000] for request in self.requests)
        return f"{self.kind}: {self.what[:600]}\n    {shown}"


@dataclass(frozen=True)
class Reply:
    """What came back; status 0 when the connection broke."""

    status: int
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        return json.loads(self.content)


class Target:
    """A served store with a stream that a reader may see and one that it may not.

    Parameters
    ----------
    directory : Path
        Empty; for the store, and an empty working directory of the server.
    settings
        Further ``CHRONICLE_*`` variables.

    Attributes
    ----------
    reader, writer : str
        Secrets of a token that reads ``s`` and the border streams, and of one that reads and writes
        streams ``w*``.
    faults : list of Fault
    asked : int
        Requests so far, canaries not counted.
    health_s : float
        Longest answer of /healthz.
    """

    def __init__(self, directory: Path, **settings: object) -> None:
        self.store = directory / "store"
        self.work = directory / "work"
        self.work.mkdir(parents=True)
        self.settings = {"QUERY_TIMEOUT_MS": HOUR_MS, "QUERY_MEMORY_BYTES": 256 << 20, **settings}
        self.faults: list[Fault] = []
        self.asked = 0
        self._running: dict[int, str] = {}
        self._stopping = threading.Event()
        self._killed = False  # by the watcher, for its memory
        self._lock = threading.RLock()
        self._fill()
        self.reader = create_token(self.store, "reader", ["read"], ["s", *BORDERS])[1]
        self.writer = create_token(self.store, "writer", ["read", "write", "admin"], ["w*"])[1]
        self._start()
        self.health_s = 0.0
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    def _fill(self) -> None:
        with chronicle.open(self.store) as db:
            for name, value in (("s", "b"), (HIDDEN, SECRET)):
                db.sql(
                    f"CREATE STREAM {name} (t BIGINT, k VARCHAR, x DOUBLE, d DECIMAL(10, 2),"
                    " at TIMESTAMP, flag BOOLEAN, raw BLOB) TIMESTAMP BY t"
                )
                db.sql(
                    f"INSERT INTO {name} SELECT i, CASE WHEN i % 2 = 0 THEN 'a' ELSE '{value}' END,"
                    " i / 2, i / 4, TIMESTAMP '2026-01-01' + to_seconds(i), i % 3 = 0,"
                    " encode(k || i) FROM (SELECT range AS i, 'r' AS k FROM range(40))"
                )
            create_border_streams(db, seed())

    # -- the process ---------------------------------------------------------------------------

    def _start(self) -> None:
        variables = {f"CHRONICLE_{name}": str(value) for name, value in self.settings.items()}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(self.store)],
            cwd=self.work,
            stderr=subprocess.PIPE,
            env={**os.environ, "CHRONICLE_LOG_LEVEL": "info", **variables},
        )
        listening = threading.Event()
        self.log: list[str] = []
        self.url = ""

        def read() -> None:
            assert self.process.stderr is not None
            for line in self.process.stderr:
                text = line.decode(errors="replace").rstrip()
                self.log.append(text)
                if found := re.search(r"listens on (http://\S+)", text):
                    self.url = found[1]
                    listening.set()
            listening.set()

        self._reader = threading.Thread(target=read)
        self._reader.start()
        listening.wait(PATIENCE_S)
        assert self.url, "\n".join(self.log)
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE_S)
        wait_until(lambda: self.http.get("/readyz").status_code == 200)  # compiling takes memory
        self._family = psutil.Process(self.process.pid)
        self.canaries()
        self.base = self._memory()

    def _end(self) -> None:
        family = [self._family]
        with contextlib.suppress(psutil.NoSuchProcess):
            family += self._family.children(recursive=True)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(PATIENCE_S)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        self.http.close()

    def restart(self) -> None:
        """End the server and start it on the same store."""
        with self._lock:
            self._end()
            self._start()

    def close(self) -> None:
        """End the server and the watcher."""
        self._stopping.set()
        self._watcher.join()
        self._end()

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- asking --------------------------------------------------------------------------------

    def note(self, kind: str, what: str, *requests: str) -> None:
        """Keep a fault; without requests, those that run now are named."""
        self.faults.append(Fault(kind, what, requests or tuple(self._running.values())))

    def send(
        self, method: str, path: str, shown: str, token: str | None = None, **more: Any
    ) -> Reply:
        """One request; faults of its answer are noted.

        Parameters
        ----------
        shown : str
            What a fault says was sent.
        token : str, optional
            The reader's by default.
        """
        headers = {
            "Authorization": f"Bearer {token or self.reader}",
            **more.pop("headers", {}),
        }
        self.asked += 1
        self._running[threading.get_ident()] = shown
        try:
            answer = self.http.request(method, path, headers=headers, **more)
            reply = Reply(answer.status_code, answer.content)
        except (httpx.HTTPError, RuntimeError) as error:
            reply = Reply(0, repr(error).encode())
        finally:
            self._running.pop(threading.get_ident(), None)
        if self.process.poll() is not None:
            self._revive(shown)
        elif reply.status == 0:
            self.note("slow", f"no answer: {reply.text}", shown)
            if not self._running:  # what it still does would be laid to the next request
                self.restart()
        elif reply.status in (500, 502):
            time.sleep(0.1)  # until what it logged has been read
            cause = "\n".join(self.log[-200:]).rpartition("Traceback")[2][-1500:]
            self.note("500", f"{reply.text}\n{cause}", shown)
        text = reply.text
        if reply.status and (reply.status != 200 or len(text) < 100_000):
            for hidden in (SECRET, HIDDEN, str(self.store), str(Path(chronicle.__file__).parent)):
                if hidden in text and hidden not in shown:
                    self.note("leaked", f"{hidden!r} in {text}", shown)
            if reply.status >= 400 and (found := STACK.search(text)):
                self.note("leaked", f"{found[0]!r} in {text}", shown)
        return reply

    def query(self, sql: str, token: str | None = None, **more: Any) -> Reply:
        """Run a statement by POST, for three seconds unless told otherwise."""
        body = {"sql": sql, "limit": 100, "timeout_ms": 3000, **more}
        headers = {"Content-Type": "application/json"}
        content = json.dumps(body)
        return self.send("POST", "/v1/query", sql, token, content=content, headers=headers)

    def _revive(self, shown: str) -> None:
        with self._lock:
            if self.process.poll() is None:
                return
            if not self._killed:
                self.note("died", f"exit code {self.process.returncode}; {self.log[-3:]}", shown)
            self._killed = False
            self.restart()

    def canaries(self, shown: str = "start") -> None:
        """Ask what has known answers; what differs is a fault, and the server is replaced."""
        wrong = []
        for sql, value in CANARIES.items():
            try:
                answer = self.http.post(
                    "/v1/query",
                    json={"sql": sql, "timeout_ms": 3000},
                    headers={"Authorization": f"Bearer {self.reader}"},
                )
                rows = answer.json().get("rows")
            except (httpx.HTTPError, ValueError) as error:
                rows = repr(error)
            else:
                if answer.status_code in (429, 503, 504):
                    continue  # busy, which is another oracle's
            if rows != [{"v": value}]:
                wrong.append(f"{sql}: {rows or answer.text}")
        if files := [str(path.relative_to(self.work)) for path in self.work.rglob("*")]:
            wrong.append(f"files in the working directory: {files}")
            for path in sorted(self.work.rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
        if wrong:
            assert shown != "start", wrong
            self.note("changed", "; ".join(wrong), shown)
            self.restart()

    # -- watching ------------------------------------------------------------------------------

    def _memory(self) -> int:
        """Anonymous memory of the process and its children, in bytes."""
        total = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            family = [self._family, *self._family.children(recursive=True)]
            for process in family:
                with contextlib.suppress(OSError, ValueError, IndexError):
                    status = Path(f"/proc/{process.pid}/status").read_text()
                    total += int(status.partition("RssAnon:")[2].split()[0]) << 10
        return total

    def _watch(self) -> None:
        """Until closed: how much memory, and how long /healthz takes."""
        with httpx.Client(timeout=PATIENCE_S) as http:
            while not self._stopping.is_set():
                time.sleep(0.05)
                if self._memory() > self.base + MEMORY_ABOVE_BASE:
                    used = (self._memory() - self.base) >> 20
                    self.note("memory", f"{used} MiB above base")
                    self._killed = True
                    with contextlib.suppress(psutil.NoSuchProcess):
                        self._family.kill()
                    while self.process.poll() is not None and not self._stopping.is_set():
                        time.sleep(0.05)  # until a client has started it again
                    continue
                begun = time.monotonic()
                with contextlib.suppress(httpx.HTTPError):
                    http.get(f"{self.url}/healthz")
                    self.health_s = max(self.health_s, time.monotonic() - begun)
