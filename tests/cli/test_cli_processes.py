"""The command line as a process: pipes, interrupts, full disks, servers, the prompt."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Run = Callable[..., Any]


def process(*arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "chronicle.cli", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def test_a_reader_that_goes_away_is_no_error(run: Run, tmp_path: Path) -> None:
    table = pa.table({"t": np.arange(200_000), "x": np.arange(200_000)})
    pq.write_table(table, tmp_path / "f.parquet")
    run("ingest", "f.parquet", "--stream", "s", "--time", "t", "--create")
    child = process("sql", "-f", "ndjson", "SELECT * FROM s")
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait(30) == 0
    child.stderr.close()


@pytest.mark.parametrize("commit", ["end", "batch"])
def test_an_interrupt_says_what_is_stored(run: Run, tmp_path: Path, commit: str) -> None:
    child = process(
        *("ingest", "-", "--stream", "s", "--time", "t", "--create", "--commit", commit),
        stdin=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stderr is not None
    child.stdin.write(b"t,x\n2020-01-01,1\n2020-01-02,2\n")
    child.stdin.flush()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        time.sleep(0.1)
        if commit == "end" and (tmp_path / "st" / "CHRONICLE").exists():
            time.sleep(1)
            break
        if commit == "batch" and "2" in run("sql", "SELECT count(*) AS n FROM s").out:
            break
    child.send_signal(signal.SIGINT)
    code = child.wait(30)
    message = child.stderr.read().decode()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    assert code == 130, message
    assert "Traceback" not in message
    assert "interrupted" in message
    expected = "nothing was stored" if commit == "end" else "2 events are stored in 's'"
    assert expected in message
    assert run("check").code == 0


def test_a_disk_that_is_full(run: Run, sensors: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    table = pa.table({"t": np.arange(300_000), "x": random.random(300_000)})
    pq.write_table(table, tmp_path / "f.parquet")
    child = process(
        *("ingest", "f.parquet", "--stream", "big", "--time", "t", "--create"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    _, message = child.communicate(timeout=60)
    assert child.returncode == 1
    assert b"Traceback" not in message
    assert b"nothing was stored in 'big'" in message
    assert run("check").code == 0
    assert "sensors" in run("streams").out
    assert "big" not in run("streams").out


@pytest.fixture
def served(run: Run, tmp_path: Path) -> Iterator[str]:
    """The address of a server in a process of its own, on an empty store."""
    pytest.importorskip("uvicorn")
    with open(tmp_path / "server.log", "wb") as log:
        command = [sys.executable, "-m", "chronicle.cli", "serve", "--port", "0", "-s", "served"]
        child = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"http://\S+", (tmp_path / "server.log").read_text())):
            assert child.poll() is None, (tmp_path / "server.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield found[0].rstrip("/")
    finally:
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0


def test_the_same_commands_by_a_server(run: Run, served: str, tmp_path: Path) -> None:
    place = ("--url", served)
    rows = 70_000
    table = pa.table({"t": np.arange(rows)[::-1], "x": np.arange(rows) / 2})
    pq.write_table(table, tmp_path / "f.parquet")
    arguments = ("ingest", "f.parquet", "--stream", "s", "--time", "t")
    missing = run(*arguments, *place)
    assert missing.code == 1
    assert "--create" in missing.err
    made = run(*arguments, "--create", *place)
    assert made.code == 0, made.err
    assert "70,000 events from 1 file stored in new stream 's'" in made.out
    assert run(*arguments, "--commit", "batch", *place).code == 0
    (tmp_path / "bad.csv").write_text("t,x\n1,1\n2,abc\n")
    bad = run("ingest", "bad.csv", "--stream", "s", *place)
    assert bad.code == 1
    assert "nothing was stored in 's'" in bad.err
    text = "SELECT count(*) AS n FROM s WHERE x >= $low"
    counted = run("sql", "-f", "ndjson", text, "-p", "low=0.5", *place)
    assert json.loads(counted.out) == {"n": 2 * (rows - 1)}
    assert json.loads(run("streams", "-f", "ndjson", *place).out)["events"] == 2 * rows
    assert "events: 140,000" in run("describe", "s", *place).out
    assert "count" in run("explain", "SELECT count(*) FROM s", *place).out
    wrong = run("sql", "SELEC", *place)
    assert wrong.code == 1
    assert "line 1, column 1" in wrong.err
    assert "--url" in run("ingest", "bad.csv", "--stream", "s", "-s", "served").err


def test_the_prompt(sensors: Path, tmp_path: Path) -> None:
    """On a terminal: statements over several lines, errors that do not end it, history."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb", "COLUMNS": "100"}
    child = subprocess.Popen(
        [sys.executable, "-m", "chronicle.cli", "sql", "--store", str(sensors)],
        stdin=follower, stdout=follower, stderr=follower, env=environment, close_fds=True,
    )  # fmt: skip
    os.close(follower)
    seen = ""

    def until(text: str) -> None:
        nonlocal seen
        deadline = time.monotonic() + 40
        while text not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([leader], [], [], 0.2)[0]:
                try:
                    seen += os.read(leader, 65536).decode(errors="replace")
                except OSError:
                    pytest.fail(f"the prompt ended before {text!r}: {seen}")
        seen = seen[seen.index(text) + len(text) :]

    try:
        until("chronicle> ")
        os.write(leader, b"SELECT count(*) AS n\n")
        until("...> ")
        os.write(leader, b"FROM sensors;\n")
        until("10")
        until("1 row")
        os.write(leader, b"SELEC;\n")
        until("error:")
        until("chronicle> ")
        os.write(leader, b".streams\n")
        until("sensors")
        until("chronicle> ")
        os.write(leader, b"\x04")
        assert child.wait(20) == 0
    finally:
        child.kill()
        child.wait()
        os.close(leader)
    assert "FROM sensors;" in (tmp_path / "chronicle" / "history").read_text()
