"""The command line as a process: pipes, interrupts, full disks, servers, the prompt."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chronicle import cli
from chronicle.commands.options import Connection
from chronicle.commands.sql import Completer
from chronicle.tests.patience import PATIENCE_S, wait_until

from .conftest import Run


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
    assert child.wait(PATIENCE_S) == 0
    child.stderr.close()


TELLING = (
    "import atexit, sys; from chronicle.cli import main; "
    "atexit.register(lambda: print('pandas' in sys.modules, file=sys.stderr)); main()"
)
"""A command in a process of its own that tells in the end whether it has loaded pandas."""


def test_commands_do_without_pandas(run: Run, tmp_path: Path) -> None:
    """It is there, for the tests; to load it would be a good part of a first answer's time."""
    pytest.importorskip("pandas")
    (tmp_path / "f.csv").write_text("t,k,x\n2020-01-01,a,1\n2020-01-02,b,2\n")
    text = "SELECT window_start, k, sum(x) AS x FROM TUMBLE(s, t, INTERVAL '1' DAY) GROUP BY ALL"
    for arguments in (
        ("ingest", "f.csv", "--stream", "s", "--time", "t", "--create"),
        ("sql", "-f", "csv", text),
        ("explain", "--analyze", text),
        ("sql", "select 1"),
        ("sql", "SELECT TIMESTAMPTZ '2020-01-01', TIMESTAMP_NS '2020-01-01 00:00:00.123456789'"),
        ("streams",),
        ("describe", "s"),
        ("tail", "s"),
        ("tail", "s", "--after", "0"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", TELLING, *arguments], capture_output=True, text=True, check=True
        )
        assert done.stderr.splitlines()[-1] == "False", arguments
        if "csv" in arguments:
            assert sorted(line.partition(",")[2] for line in done.stdout.splitlines()) == [
                "a,1", "b,2", "k,x",
            ]  # fmt: skip


@pytest.mark.parametrize("commit", ["end", "batch"])
def test_an_interrupt_says_what_is_stored(run: Run, commit: str) -> None:
    child = process(
        *("ingest", "-", "--stream", "s", "--time", "t", "--create", "--commit", commit),
        stdin=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stderr is not None
    child.stdin.write(b"t,x\n2020-01-01,1\n2020-01-02,2\n")
    child.stdin.flush()
    pipe = child.stdin
    wait_until(lambda: not any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))), "reading")
    if commit == "batch":
        wait_until(lambda: "2" in run("sql", "SELECT count(*) AS n FROM s").out)
    child.send_signal(signal.SIGINT)
    code = child.wait(PATIENCE_S)
    message = child.stderr.read().decode()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    assert code == 130, message
    assert "Traceback" not in message
    assert "interrupted" in message
    # another process may see a commit while its writer still waits for the disk
    there = commit == "batch" and "s" in run("streams").out.split()
    assert ("2 events are stored in 's'" if there else "nothing was stored") in message
    assert ("2" in run("sql", "SELECT count(*) AS n FROM s").out) == there
    assert run("check").code == 0


def test_a_disk_that_is_full(run: Run, sensors: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    table = pa.table({"t": np.arange(300_000), "x": random.random(300_000)})
    pq.write_table(table, tmp_path / "f.parquet")
    child = process(
        *("ingest", "f.parquet", "--stream", "big", "--time", "t", "--create"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    _, message = child.communicate(timeout=PATIENCE_S)
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
        command = [sys.executable, "-c", TELLING, "serve", "--port", "0", "-s", "served"]
        child = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        told = (tmp_path / "server.log").read_text
        wait_until(lambda: "http://" in told() or child.poll() is not None)
        found = re.search(r"http://\S+(?=\s)", told())
        assert found is not None, told()
        yield found[0].rstrip("/")
    finally:
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE_S) == 0
    assert told().splitlines()[-1] == "False"


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


def test_tokens_and_jobs_of_a_server(run: Run, served: str, tmp_path: Path) -> None:
    place = ("--url", served)
    (tmp_path / "f.csv").write_text("t,x\n" + "".join(f"{t},{t / 2}\n" for t in range(100)))
    assert run("ingest", "f.csv", "--stream", "s", "--time", "t", "--create", *place).code == 0
    begun = run("job", "start", "index", "--stream", "s", "--attribute", "x", *place)
    assert begun.code == 0, begun.err
    job = begun.out.strip()
    waited = run("job", "wait", job, "--timeout", str(PATIENCE_S), *place)
    assert json.loads(waited.out)["attribute"] == "x"
    asked = ("job", "start", "update", "--stream", "s", "--set", "x = x + 1", "--from", "90")
    assert json.loads(run(*asked, "--wait", *place).out) == {"updated": 10}
    lines = run("job", "list", "-f", "ndjson", *place).out.splitlines()
    listed = [json.loads(line) for line in lines]
    assert [(row["job"] == job, row["kind"], row["state"]) for row in listed] == [
        (True, "index", "done"), (False, "update", "done")
    ]  # fmt: skip
    assert json.loads(run("job", "show", job, "-f", "ndjson", *place).out) == listed[0]
    assert run("job", "cancel", job, *place).code == 0
    failing = run("job", "start", "delete", "--stream", "s", "--where", "y = 1", "--wait", *place)
    assert (failing.code, "no column 'y'" in failing.err) == (1, True)
    for wrong, said in {
        ("job", "start", "backup", *place): "CHRONICLE_BACKUP_DIRECTORY",
        ("job", "start", "check", "--where", "true", *place): "where",
        ("job", "start", "index", "--stream", "s", "--stream", "r", *place): "found 2",
        ("job", "start", "update", "--stream", "s", "--set", "x", *place): "column=expression",
        ("job", "show", "nothing", *place): "no job 'nothing'",
        ("job", "list"): "give --url",
    }.items():
        outcome = run(*wrong)
        assert (outcome.code, said in outcome.err) == (2, True), outcome.err
    boss = run("token", "create", "boss", "--scope", "admin", *place)
    assert boss.out.startswith("chr_")
    assert run("job", "list", *place).code == 1, "closed from then on"
    place = (*place, "--token", boss.out.strip())
    made = run("token", "create", "grafana", "--stream", "s", "--expires", "90d", *place)
    assert "read on s, until" in made.err
    new = run("token", "rotate", "grafana", "--overlap", "0s", *place)
    assert new.out.startswith("chr_")
    found = json.loads(run("token", "list", "-f", "json", *place).out)
    assert [(row["name"], row["scopes"], row["streams"]) for row in found] == [
        ("boss", "admin", "*"), ("grafana", "read", "s")
    ]  # fmt: skip
    assert run("token", "revoke", "grafana", *place).out == "token grafana revoked\n"
    assert run("token", "revoke", "grafana", *place).code == 2
    assert run("token", "revoke", "--all", *place).out == ""


class Terminal:
    """The prompt as a person has it: what is typed, and what comes out."""

    def __init__(self, store: Path, state: Path, **more: str) -> None:
        self.leader, follower = pty.openpty()
        environment = {**os.environ, "XDG_STATE_HOME": str(state), "TERM": "dumb", **more}
        self.child = subprocess.Popen(
            [sys.executable, "-m", "chronicle.cli", "sql", "--store", str(store)],
            stdin=follower, stdout=follower, stderr=follower, env=environment, close_fds=True,
        )  # fmt: skip
        os.close(follower)
        self.seen = ""

    def __enter__(self) -> Terminal:
        self.until("chronicle> ")
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait()
        os.close(self.leader)

    def until(self, text: str) -> str:
        """Wait for a text; gives what came before it."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.leader], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.leader, 65536).decode(errors="replace")
                except OSError:
                    pytest.fail(f"the prompt ended before {text!r}: {self.seen}")
        before, self.seen = self.seen.split(text, 1)
        return before

    def type(self, text: str) -> None:
        os.write(self.leader, text.encode())

    def answer(self, line: str) -> str:
        """What comes out for a line, up to the next prompt."""
        self.type(line + "\n")
        return self.until("chronicle> ")


def test_the_prompt(sensors: Path, tmp_path: Path) -> None:
    """Statements over several lines, errors that do not end it, a history of statements."""
    with Terminal(sensors, tmp_path, COLUMNS="100") as terminal:
        terminal.type("SELECT count(*) AS n\n")
        terminal.until("...> ")
        assert re.search(r"\b10\b.*1 row", terminal.answer("FROM sensors;"), re.DOTALL)
        lines = terminal.answer("SELECT x, nope FROM sensors;").splitlines()
        told = next(i for i, line in enumerate(lines) if "error:" in line)
        assert lines[told + 1] == "  SELECT x, nope FROM sensors"
        assert lines[told + 2] == " " * len("  SELECT x, ") + "^"
        terminal.type("\x04")
        assert terminal.child.wait(PATIENCE_S) == 0
    history = tmp_path / "chronicle" / "history"
    assert history.stat().st_mode & 0o077 == 0
    assert history.read_text().splitlines() == [
        "SELECT count(*) AS n\x01FROM sensors;", "SELECT x, nope FROM sensors;"
    ]  # fmt: skip
    with Terminal(sensors, tmp_path, COLUMNS="100") as terminal:
        terminal.type("\x1b[A\x1b[A\n")  # up, up: the whole statement, not its last line
        terminal.until("1 row")


def test_commands_of_the_prompt(sensors: Path, tmp_path: Path) -> None:
    with Terminal(sensors, tmp_path, COLUMNS="100") as terminal:
        for line in ("\\d", ".streams", "\\dt;"):
            assert "sensors" in terminal.answer(line)
        assert "TIMESTAMP" in terminal.answer("\\d sensors").upper()
        assert "no stream 'sensor'; did you mean sensors?" in terminal.answer("\\d sensor")
        assert "rows" in terminal.answer("\\di sensors")
        assert "rows" in terminal.answer("\\dl")
        terminal.answer("CREATE VIEW high AS SELECT x FROM sensors WHERE x > 1;")
        assert "SELECT x FROM sensors WHERE x > 1" in terminal.answer("\\dv")
        assert "DOUBLE" in terminal.answer("\\d high").upper()
        assert "timing is on" in terminal.answer("\\timing")
        assert re.search(r"\d\.\d{3} s", terminal.answer("SELECT 1;"))
        assert "timing is off" in terminal.answer(".timing off")
        assert "expanded display is on" in terminal.answer("\\x")
        assert "-[ row 1 ]-\r\none   | 1\r\nthree | 3" in terminal.answer("SELECT 1 one, 3 three;")
        assert "found 'maybe'" in terminal.answer("\\x maybe")
        assert '{"a":1}' in terminal.answer("\\format ndjson") + terminal.answer("SELECT 1 AS a;")
        assert "binary" in terminal.answer("\\format parquet")
        unknown = terminal.answer("\\timeing")
        assert "there is no command \\timeing; did you mean \\timing?" in unknown
        for line in ("help", "\\?", ".help"):
            assert "\\timing" in terminal.answer(line)
        terminal.type("quit\n")
        assert terminal.child.wait(PATIENCE_S) == 0


def test_the_prompt_completes(sensors: Path) -> None:
    connection = Connection(sensors)
    with connection.database("rw") as database:
        database.sql("CREATE VIEW high AS SELECT x AS height FROM sensors")
    for before, typed, wanted in (
        ("SELECT x FROM ", "h", ["high"]),
        ("SELECT ", "heigh", ["height"]),
        ("SELECT x FROM ", "s", ["sensors"]),
        ("\\d ", "S", ["sensors"]),
        ("SELECT avg(x) FROM TUMBLE(", "", ["high", "sensors"]),
        ("SELECT ", "na", ["name"]),
        ("SELECT 1 ", "FRO", ["FROM"]),
    ):
        completer = Completer(connection, lambda before=before: before)
        found = [completer(typed, state) for state in range(len(wanted) + 1)]
        assert found == [*wanted, None], before


def test_columns_without_room_are_named(sensors: Path, tmp_path: Path) -> None:
    with Terminal(sensors, tmp_path, COLUMNS="40") as terminal:
        names = ", ".join(f"{i}234567890.5 AS col{i}" for i in range(1, 7))
        answer = terminal.answer(f"SELECT {names};")
    shown = set(re.findall(r"col\d", answer.split("columns fit here")[0]))
    named = re.search(r"of 6 columns fit here, not ([^:]*):", answer)
    assert named is not None
    assert len(set(named[1].split(", ")) ^ shown) == 6


def test_commands_of_spark_have_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that compare with other libraries."""
    finders = list(sys.meta_path)
    monkeypatch.setattr(sys, "meta_path", finders.copy())
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    ingest = ["ingest", "a.csv"]
    for asked in (
        [*ingest, "--engine", "spark"], [*ingest, "--engine=spark"],
        [*ingest, "--master", "local[2]"], ["demo"], ["bench", "store"],
    ):  # fmt: skip
        cli._load_less(asked)
        assert sys.meta_path == finders
    cli._load_less(ingest)
    assert sys.meta_path != finders


@pytest.mark.skipif(
    not Path("/proc/self/task").exists() or os.cpu_count() == 1,
    reason="counts threads in /proc; one core has one anyway",
)
def test_a_command_starts_no_threads_for_matrices() -> None:
    asked = (
        "import os\n"
        "from chronicle import cli\n"
        "cli._load_less(['sql'])\n"
        "import numpy\n"
        "print(len(os.listdir('/proc/self/task')))\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout == "1\n"


def test_pandas_is_absent_to_all_that_ask() -> None:
    """To those that import it, those that look whether they could, and those in sys.modules."""
    pytest.importorskip("pandas")
    asked = (
        "import importlib.metadata, importlib.util, sys\n"
        "from chronicle import cli\n"
        "cli._load_less(['sql'])\n"
        "print(importlib.util.find_spec('pandas'), 'pandas' in sys.modules)\n"
        "for name in ('pandas', 'pandas.core'):\n"
        "    try:\n"
        "        __import__(name)\n"
        "    except ModuleNotFoundError as error:\n"
        "        print(error, error.name)\n"
        "import duckdb, json.tool, pyarrow as pa\n"
        "print(duckdb.sql('SELECT 1').fetchall(), pa.array([1, None]).to_pylist())\n"
        "found = importlib.util.find_spec('pyarrow.csv')\n"
        "print(found.name, importlib.metadata.version('pyarrow'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", asked], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "None False",
        "No module named 'pandas' pandas",
        "No module named 'pandas' pandas",
        "[(1,)] [1, None]",
        f"pyarrow.csv {pa.__version__}",
    ]
