"""Processes that follow: the real server killed in mid-step, the command line in a pipe."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.tests.patience import PATIENCE_S, wait_until
from chronicle.tests.server.event_client import Source

ROOT = Path(chronicle.__file__).resolve().parent
SCHEMA = pa.schema([pa.field("t", pa.int64(), False), pa.field("n", pa.int64())])
LIVE = "CREATE LIVE QUERY high IDLE AFTER INTERVAL '0' SECOND AS SELECT t, n FROM s WHERE n > 2"


INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""Tests that run in the background ignore interrupts, and so would their children."""


class Process:
    """A ``chronicle`` command of its own."""

    def __init__(self, *arguments: str, store: Path) -> None:
        environment = {**os.environ, "CHRONICLE_STORE": str(store), "CHRONICLE_PORT": "0"}
        environment["CHRONICLE_ISOLATION"] = "none"
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"{INTERRUPTIBLE}from chronicle import cli; cli.main()",
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode()

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> tuple[int, str]:
        out, error = self.process.communicate(timeout=PATIENCE_S)
        del out
        return self.process.returncode, error.decode()


def serve(store: Path, port: int = 0) -> tuple[Process, str]:
    served = Process("serve", "--port", str(port), store=store)
    assert served.process.stderr is not None
    while True:
        line = served.process.stderr.readline().decode()
        assert line, "it ended"
        found = re.search(r"http://[\w.:]+", line)
        if found and "serves" in line:
            return served, found[0]


def ask(url: str, body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with chronicle.open(tmp_path / "store") as database:
        database.create_stream("s", SCHEMA, time="t")
    return tmp_path / "store"


@pytest.mark.slow
@pytest.mark.crash
def test_a_server_killed_in_mid_step_tells_every_seq_once(store: Path) -> None:
    """What was acknowledged, and once: the writer and the client both go on after each kill."""
    served, url = serve(store)
    port = int(url.rpartition(":")[2])
    ask(f"{url}/v1/live", {"sql": LIVE})
    source = Source(f"{url}/v1/live/high/rows", reconnect=True)
    told: list[tuple[int, int]] = []
    number = 0
    try:
        for killed in range(3):
            until = number + 100
            while number < until or source.connections <= killed:
                t = number * 3 if number % 5 else max(0, number * 3 - 40)
                ask(f"{url}/v1/streams/s/events", [{"t": t, "n": number % 7}])
                if number % 7 > 2:
                    told.append((t, number % 7))
                number += 1
            served.kill()
            served, url = serve(store, port)
        ask(f"{url}/v1/streams/s/events", [{"t": number * 3 + 1000, "n": 6}])
        told.append((number * 3 + 1000, 6))
        wait_until(lambda: len(_net(source.rows)) >= len(told))
        assert [row["_seq"] for row in source.rows] == list(range(1, len(source.rows) + 1))
        assert _net(source.rows) == sorted(told)
        assert source.connections >= 4
    finally:
        source.stop()
        served.process.send_signal(signal.SIGTERM)
        assert served.end()[0] == 0


def _net(rows: list[Any]) -> list[tuple[int, int]]:
    held: dict[tuple[str, int], tuple[int, int]] = {}
    for row in list(rows):
        key = (row["_id"], row["_rev"])
        if row["_diff"] > 0:
            held[key] = (row["t"], row["n"])
        else:
            del held[key]
    return sorted(held.values())


def test_the_command_line_follows_and_ends_quietly(store: Path) -> None:
    with chronicle.open(store) as database:
        stream = database.stream("s")
        follower = Process("tail", "s", "-F", "--after", "0", "-f", "ndjson", store=store)
        stream.append([{"t": 1, "n": 1}])
        assert json.loads(follower.line()) == {"t": 1, "n": 1}
        stream.append([{"t": 0, "n": 2}])
        assert json.loads(follower.line()) == {"t": 0, "n": 2}
        follower.process.send_signal(signal.SIGINT)
        assert follower.end() == (0, "")
        reader = Process("tail", "s", "-F", "--after", "0", "-f", "csv", store=store)
        assert reader.line() == "t,n\n"
        assert reader.process.stdout is not None
        reader.process.stdout.close()  # as `| head -1` does, and nothing more is written
        reader.process.wait(PATIENCE_S)
        assert reader.process.returncode == 0
        assert reader.process.stderr is not None
        assert reader.process.stderr.read() == b""
        reader.process.stderr.close()


FORGETS = """
import sys
from chronicle import cli
from chronicle.catalog import tailing

class Forgets:
    def __del__(self):
        print("finalizing", file=sys.stderr, flush=True)
        while True:
            pass

def forgetting(take):
    def taken(self):
        if self.place.position == 1 and not hasattr(self, "went_by"):
            self.went_by = True
            Forgets()
        return take(self)
    return taken

tailing.Tail.take = forgetting(tailing.Tail.take)
cli.main()
"""


def test_an_interrupt_while_an_object_is_finalized_ends_it_too(store: Path) -> None:
    with chronicle.open(store) as database:
        database.stream("s").append([{"t": 1, "n": 1}])
        arguments = ["tail", "s", "-F", "--after", "0", "-f", "ndjson"]
        environment = {**os.environ, "CHRONICLE_STORE": str(store), "CHRONICLE_ISOLATION": "none"}
        follower = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE + FORGETS, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        assert follower.stderr is not None
        try:
            assert follower.stderr.readline() == b"finalizing\n"
            follower.send_signal(signal.SIGINT)
            _, error = follower.communicate(timeout=PATIENCE_S)
        finally:
            follower.kill()
        assert b"KeyboardInterrupt" in error  # Python told of it, and went on
        assert follower.returncode == 0
