"""The command line as its users meet it: answers, errors, exit codes, pipes, interrupts."""

from __future__ import annotations

import gzip
import io
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

import chronicle
from chronicle import cli
from chronicle.commands.sql import parameters
from chronicle.commands.sql_script import is_complete, only_reads, split
from chronicle.errors import InvalidArgument

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data is not there")

Run = Callable[..., "Outcome"]


class Outcome:
    """What a command printed and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Run:
    """Runs a command in this process, in a directory of its own with a store ``st``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHRONICLE_STORE", "st")
    monkeypatch.delenv("CHRONICLE_DEBUG", raising=False)

    def command(*arguments: str, stdin: bytes | None = None) -> Outcome:
        if stdin is not None:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        code = cli.run(list(arguments))
        sys.stdout.flush()
        captured = capfdbinary.readouterr()
        assert b"Traceback" not in captured.err
        return Outcome(code, captured.out.decode(errors="replace"), captured.err.decode())

    return command


@pytest.fixture
def sensors(run: Run, tmp_path: Path) -> Path:
    """A store with one small stream."""
    lines = [f"2020-01-{day:02} 00:00:00,{day / 2},pump {day % 2}" for day in range(1, 11)]
    (tmp_path / "sensors.csv").write_text("\n".join(["t,x,name", *lines]) + "\n")
    outcome = run("ingest", "sensors.csv", "--stream", "sensors", "--time", "t", "--create")
    assert outcome.code == 0
    return tmp_path / "st"


# ---------------------------------------------------------------------------------------- ingest


def test_ingest_says_what_it_did(run: Run, sensors: Path) -> None:
    outcome = run("ingest", "sensors.csv", "--stream", "sensors")
    assert outcome.code == 0
    assert "10 events, 9 of them late from 1 file stored in stream 'sensors'" in outcome.out
    assert "it has 20 now" in outcome.out
    report = run("ingest", "sensors.csv", "--stream", "sensors", "--json")
    assert json.loads(report.out)["stored"] == 10


def test_ingest_with_every_option_of_columns(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pump_1.txt").write_text("01.02.2020 05:00;7;a;N/A\n01.02.2020 06:00;8;b;3\n")
    outcome = run(
        *("ingest", "*.txt", "--stream", "s", "--create", "--format", "csv"),
        *("--columns", "when,code,junk,x", "--separator", ";", "--null", "N/A"),
        *("--rename", "when=t", "--time", "t", "--time-format", "%d.%m.%Y %H:%M"),
        *("--types", "code=string,x=float", "--select", "code,x", "--file-column", "sensor"),
        *("--codec", "zstd", "--retention", "30 days", "--batch-size", "1"),
    )
    assert outcome.code == 0, outcome.err
    rows = json.loads(run("sql", "-f", "json", "SELECT * FROM s").out)
    assert rows == [
        {"t": "2020-02-01T05:00:00", "code": "7", "x": None, "sensor": "pump_1"},
        {"t": "2020-02-01T06:00:00", "code": "8", "x": 3.0, "sensor": "pump_1"},
    ]


def test_ingest_from_stdin(run: Run) -> None:
    rows = gzip.compress(b'[{"at": 1533101250000, "x": 1}, {"at": 1533101260000, "x": 2.5}]')
    outcome = run("ingest", "-", "--stream", "s", "--time", "at", "--create", stdin=rows)
    assert outcome.code == 0
    assert "note: at: numbers taken as milliseconds since 1970" in outcome.err
    assert "2018-08-01 05:27:30" in run("sql", "SELECT min(at) FROM s").out


def test_ingest_keeps_bad_rows_when_asked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(
        "t,x\n2020-01-01,1\nnever,2\n2020-01-03,abc\n2020-01-04,4\n2020-01-05,5\n"
    )
    arguments = ("ingest", "f.csv", "--stream", "s", "--time", "t", "--create", "--types", "x=int")
    strict = run(*arguments)
    assert strict.code == 1
    assert "f.csv, line 3 (row 2), column 't': expected a time" in strict.err
    assert "nothing was stored in 's'" in strict.err
    assert "--on-error" in strict.err
    kept = run(*arguments, "--on-error", "quarantine", "--quarantine-file", "bad.ndjson")
    assert kept.code == 0
    assert "2 of 5 rows could not be read" in kept.err
    assert "kept in bad.ndjson" in kept.err
    lines = [json.loads(line) for line in (tmp_path / "bad.ndjson").read_text().splitlines()]
    assert [(line["line"], line["column"]) for line in lines] == [(3, "t"), (4, "x")]
    assert "3" in run("sql", "SELECT count(*) FROM s").out
    none = run("ingest", "f.csv", "--stream", "s", "--on-error", "skip", "--rename", "x=t,t=x")
    assert none.code == 1
    assert "nothing could be read" in none.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"t,x\n", "there are no rows"),
        (b"x,y\n1,2\n", "no time column 't'"),
        (b"t,x,x\n2020-01-01,1,2\n", "occurs 2 times"),
        (b"t,x\nyesterday,1\n", "does not hold times"),
        (b"t,x\nnan,1\n2020-01-01,1\n2020-01-01,1\n", "column 't'"),
        (b"t,x\n2020-01-01,1\n2020-01-02\n", "expected 2 values, found 1"),
        (b"PAR1 is how it begins, but no more", "not a complete Parquet file"),
        (b"ARROW1\0\0 is how it begins, but no more", "not a complete Arrow"),
        (b'[{"t": "2020-01-01"}, {"t": "2020', "cut off"),
        (b"\x1f\x8b\x08\x00 is how gzip begins", "damaged or cut off"),
    ],
)
def test_bad_input_is_one_clear_error(
    run: Run, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "f.dat").write_bytes(content)
    outcome = run("ingest", "f.dat", "--stream", "s", "--time", "t", "--create")
    assert outcome.code == 1
    assert message in outcome.err
    assert sum(line.startswith("error:") for line in outcome.err.splitlines()) == 1
    assert "'s'" not in run("streams").out
    assert run("check").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "No such command"),
        (["sql", "--nothing"], "No such option"),
        (["ingest", "f.csv"], "Missing option '--stream'"),
        (["ingest", "gone.csv", "--stream", "s", "--time", "t", "--create"], "there is no file"),
        (["ingest", "*.csv", "--stream", "s", "--time", "t", "--create"], "no file matches"),
        (["ingest", "-", "--stream", "s", "--on-error", "hope"], "--on-error is one of"),
        (["ingest", "-", "--stream", "s", "--types", "x=dubble"], "did you mean 'double'"),
        (["ingest", "-", "--stream", "s", "--time-format", "epoch"], "a time format is"),
        (["sql", "--format", "xml", "SELECT 1"], "--format is one of table, json"),
        (["sql", "--store", "a", "--url", "http://b", "SELECT 1"], "either --store or --url"),
        (["streams", "--url", "localhost"], "--url is http://"),
        (["sql", ""], "no SQL statement"),
        (["sql", "-p", "x", "SELECT 1"], "--param takes name=value"),
    ],
)
def test_usage_errors_exit_with_2(
    run: Run, sensors: Path, arguments: list[str], message: str
) -> None:
    (sensors.parent / "sensors.csv").unlink()
    if arguments[:2] == ["ingest", "-"]:
        arguments = [*arguments, "--time", "t", "--create"]
    outcome = run(*arguments, stdin=b"t,x\n2020-01-01,1\n")
    assert outcome.code == 2, outcome.err
    assert message in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sql", "SELEC 1"], "line 1, column 1"),
        (["sql", "SELECT nope FROM sensors"], "nope"),
        (["sql", "SELECT * FROM nothere"], "nothere"),
        (["describe", "nothere"], "no stream 'nothere'; there are sensors"),
        (["ingest", "sensors.csv", "--stream", "other"], "--create and --time"),
        (["streams", "--store", "gone"], "there is no store at gone"),
        (["streams", "--store", "."], "is not a Chronicle store"),
        (["streams", "--url", "http://127.0.0.1:9"], "cannot be reached"),
    ],
)
def test_failures_exit_with_1(run: Run, sensors: Path, arguments: list[str], message: str) -> None:
    outcome = run(*arguments)
    assert outcome.code == 1
    assert message in outcome.err
    assert outcome.out == ""


def test_a_locked_store(run: Run, sensors: Path) -> None:
    with chronicle.open(sensors):
        outcome = run("ingest", "sensors.csv", "--stream", "sensors")
        assert outcome.code == 1
        assert "error:" in outcome.err
        assert "--url" in outcome.err
        assert "10" in run("sql", "SELECT count(*) FROM sensors").out  # readers are not kept out


def test_tracebacks_only_on_request(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr("chronicle.commands.connection.Connection.database", broken)
    outcome = run("streams")
    assert outcome.code == 1
    assert "something unexpected happened: ZeroDivisionError inside" in outcome.err
    monkeypatch.setenv("CHRONICLE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run("streams")


# ------------------------------------------------------------------------------------------- sql


def test_a_table_in_a_pipe_is_plain(run: Run, sensors: Path) -> None:
    outcome = run(
        "sql",
        "SELECT t, x, name, CAST(NULL AS VARCHAR) AS nothing FROM sensors WHERE x > 4 ORDER BY t",
    )
    assert outcome.code == 0
    assert outcome.out == (
        "t                      x  name    nothing\n"
        "-------------------  ---  ------  -------\n"
        "2020-01-09 00:00:00  4.5  pump 1  NULL\n"
        "2020-01-10 00:00:00  5.0  pump 0  NULL\n"
    )
    assert run("sql", "SELECT x FROM sensors WHERE x > 99").out == "x\n-\n"


def test_answers_in_every_format(run: Run, sensors: Path, tmp_path: Path) -> None:
    text = "SELECT t, x, name FROM sensors WHERE x >= 4.5 ORDER BY t"
    rows = [{"t": "2020-01-09T00:00:00", "x": 4.5, "name": "pump 1"},
            {"t": "2020-01-10T00:00:00", "x": 5.0, "name": "pump 0"}]  # fmt: skip
    assert json.loads(run("sql", "-f", "json", text).out) == rows
    assert [json.loads(line) for line in run("sql", "-f", "ndjson", text).out.splitlines()] == rows
    assert run("sql", "-f", "csv", text).out == (
        "t,x,name\n2020-01-09 00:00:00,4.5,pump 1\n2020-01-10 00:00:00,5.0,pump 0\n"
    )
    for name in ("o.parquet", "o.arrow"):
        assert run("sql", "-o", name, text).code == 0
    assert pq.read_table(tmp_path / "o.parquet")["x"].to_pylist() == [4.5, 5.0]
    with pa.ipc.open_file(tmp_path / "o.arrow") as reader:
        assert reader.read_all().to_pydict()["name"] == ["pump 1", "pump 0"]
    assert run("sql", "-o", "o.csv", text).out == ""
    assert (tmp_path / "o.csv").read_text().count("\n") == 3
    assert run("sql", "-o", "gone/o.csv", text).code == 2
    assert not list(tmp_path.glob(".*partial"))


def test_scripts_and_parameters(run: Run, sensors: Path, tmp_path: Path) -> None:
    script = """
      -- a comment; with a semicolon
      CREATE STREAM marks (t TIMESTAMP, note VARCHAR) TIMESTAMP BY t;
      INSERT INTO marks VALUES (TIMESTAMP '2020-01-01 00:00:00', 'a;b');
      SELECT count(*) AS n FROM marks WHERE note = 'a;b';
    """
    piped = run("sql", "-f", "ndjson", stdin=script.encode())
    assert piped.code == 0, piped.err
    assert json.loads(piped.out.splitlines()[-1]) == {"n": 1}
    (tmp_path / "q.sql").write_text(
        "SELECT count(*) AS n FROM sensors WHERE x > $low AND name = $who"
    )
    outcome = run("sql", "--file", "q.sql", "-f", "ndjson", "-p", "low=2.5", "-p", "who=pump 1")
    assert json.loads(outcome.out) == {"n": 2}


def test_timeouts(run: Run, sensors: Path) -> None:
    slow = "SELECT count(*) FROM " + ", ".join(f"sensors {letter}" for letter in "abcdefghi")
    outcome = run("sql", "--timeout", "0.3", slow)
    assert outcome.code == 1
    assert "time" in outcome.err.lower()


def test_values_of_parameters() -> None:
    assert parameters(["a=1", "b=1.5", "c=true", "d=null", "e=x=y", "f='007'", "$g="]) == {
        "a": 1, "b": 1.5, "c": True, "d": None, "e": "x=y", "f": "007", "g": "",
    }  # fmt: skip
    with pytest.raises(InvalidArgument):
        parameters(["=1"])


def test_cutting_scripts() -> None:
    script = "SELECT ';' -- ;\n; /* ; */ SELECT \";\";;\n SELECT $x$;$x$ -- end"
    assert split(script) == ["SELECT ';' -- ;", '/* ; */ SELECT ";"', "SELECT $x$;$x$ -- end"]
    assert split(" ; -- nothing\n ;") == []
    assert is_complete("SELECT 1;")
    assert is_complete("SELECT 1; -- done")
    assert not is_complete("SELECT 1")
    assert not is_complete("SELECT 'a;")
    assert not is_complete("SELECT 1 /* ;")
    assert only_reads("-- x\n (SELECT 1)")
    assert only_reads("show streams")
    assert not only_reads("INSERT INTO s SELECT 1")
    assert not only_reads("")


# ------------------------------------------------------------------------------ the other commands


def test_streams_describe_and_explain(run: Run, sensors: Path) -> None:
    assert json.loads(run("streams", "-f", "json").out) == [
        {
            "stream": "sensors",
            "events": 10,
            "first": "2020-01-01 00:00:00",
            "last": "2020-01-10 00:00:00",
            "time": "t",
            "columns": 3,
        }
    ]
    described = run("describe", "sensors").out
    assert "t       timestamp  no    time" in described
    assert "events: 10" in described
    assert "count" in run("explain", "SELECT count(*) FROM sensors").out
    plan = json.loads(run("explain", "-f", "json", "--analyze", "SELECT max(x) FROM sensors").out)
    assert isinstance(plan, dict)


def test_check_finds_damage(run: Run, sensors: Path) -> None:
    run("sql", "SELECT 1")
    with chronicle.open(sensors) as db:
        db.stream("sensors").seal()
    assert run("check").out.endswith("no problems found\n")
    segment = next(sensors.glob("streams/sensors/*.seg"))
    listed = run("inspect", str(segment)).out
    assert "leaf" in listed
    block = next(line for line in listed.splitlines() if " leaf " in line)
    offset = block.split()[0].replace(",", "")
    assert "checksum sound" in run("inspect", str(segment), "--offset", offset).out
    data = bytearray(segment.read_bytes())
    data[int(offset) + 200] ^= 1
    segment.write_bytes(data)
    outcome = run("check")
    assert outcome.code == 1
    assert segment.name in outcome.out


def test_backup_and_compact(run: Run, sensors: Path) -> None:
    run("ingest", "sensors.csv", "--stream", "sensors")
    assert run("compact").code == 0
    assert run("backup", "copy").code == 0
    assert run("check", "--store", "copy").code == 0
    assert "20" in run("sql", "--store", "copy", "SELECT count(*) FROM sensors").out
    assert run("backup", "copy").code != 0


def test_tokens(run: Run, sensors: Path) -> None:
    made = run("token", "create", "grafana", "--stream", "nab_*", "--expires", "90d")
    assert made.out.startswith("chr_")
    assert "read on nab_*" in made.err
    assert json.loads(run("token", "list", "-f", "json").out)[0]["name"] == "grafana"
    assert run("token", "revoke", "grafana").code == 0
    assert run("token", "revoke", "grafana").code == 2


def test_version_and_help(run: Run) -> None:
    assert run("--version").out == f"chronicle {chronicle.__version__}\n"
    top = run("--help")
    assert top.code == 0
    assert "ingest" in top.out
    assert "\x1b" not in top.out
    assert "─" not in top.out
    assert run().code in (0, 2)


def test_demo(run: Run, tmp_path: Path) -> None:
    outcome = run("demo", "--events", "20000", "--store", "demo", "--no-spark")
    assert outcome.code == 0, outcome.err
    assert "Generate 20,000 events of 40 machines" in outcome.out
    assert "all is well" in outcome.out
    assert "20000" in run("sql", "--store", "demo", "SELECT count(*) FROM machines").out
    assert run("demo", "--store", "demo").code == 2


def test_the_factory_is_the_same_every_time() -> None:
    from chronicle.bench.factory import SCHEMA, factory_events

    table = factory_events(10_000)
    assert table.schema.equals(SCHEMA)
    assert table.equals(factory_events(10_000))
    assert not table.equals(factory_events(10_000, seed=1))
    ticks = table["time"].cast(pa.int64()).to_numpy()
    assert bool(np.all(ticks[1:] >= ticks[:-1]))
    assert set(table["state"].to_pylist()) >= {"idle", "running"}


# ---------------------------------------------------------------------------- real processes


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


@needs_data
def test_the_flights_from_the_issue(run: Run) -> None:
    flights = str(DATA / "opensky-switzerland.json.gz")
    assert (
        run("ingest", flights, "--stream", "flights", "--time", "timestamp", "--create").code == 0
    )
    outcome = run(
        "sql",
        "SELECT count(*), count(DISTINCT icao24), min(timestamp), max(timestamp) FROM flights",
    )
    assert outcome.out.splitlines()[2].split() == [
        "139098", "842", "2018-08-01", "05:00:00", "2018-08-01", "21:59:50",
    ]  # fmt: skip
    assert run("check").code == 0


@needs_data
def test_the_nab_folder_from_the_issue(run: Run) -> None:
    outcome = run(
        *("ingest", str(DATA / "nab" / "*" / "*.csv"), "--stream", "nab", "--time", "timestamp"),
        *("--create", "--file-column", "sensor"),
    )
    assert outcome.code == 0
    text = "SELECT count(DISTINCT sensor) AS n FROM nab"
    assert json.loads(run("sql", "-f", "ndjson", text).out) == {"n": 24}


# ------------------------------------------------------------------------------ the documentation


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command with its options, as the parser knows them."""
    import typer

    def walk(command: Any, name: str) -> Iterator[tuple[str, list[str]]]:
        below = getattr(command, "commands", None)
        if below:
            for child in below.values():
                yield from walk(child, f"{name} {child.name}".strip())
        else:
            options = [o for p in command.params for o in p.opts if o.startswith("--")]
            yield name, [option for option in options if option != "--help"]

    yield from walk(typer.main.get_command(cli.app), "")


@pytest.mark.parametrize(("name", "options"), list(commands()))
def test_the_manual_has_every_command_and_option(name: str, options: list[str]) -> None:
    manual = (ROOT / "docs" / "cli.md").read_text()
    assert f"## chronicle {name.split()[0]}" in manual
    assert f"chronicle {name}" in manual
    section = manual.split(f"## chronicle {name.split()[0]}", 1)[1].split("\n## ", 1)[0]
    shared = manual.split("## What all commands share", 1)[1].split("\n## ", 1)[0]
    for option in options:
        assert f"`{option}" in section or f"`{option}" in shared, option


# -------------------------------------------------------------------------------- what users meet


def test_create_on_a_stream_that_is_there_is_an_error(run: Run, sensors: Path) -> None:
    again = ("ingest", "sensors.csv", "--stream", "sensors", "--time", "t", "--create")
    outcome = run(*again)
    assert outcome.code == 1
    assert "has 10 events" in outcome.err
    assert "--if-exists append" in outcome.err
    assert json.loads(run("sql", "-f", "json", "SELECT count(*) AS n FROM sensors").out) == [
        {"n": 10}
    ]
    outcome = run(*again, "--if-exists", "append", "--codec", "zstd")
    assert outcome.code == 0
    assert "keeps its own" in outcome.err
    assert "it has 20 now" in outcome.out
    assert run(*again[:-1], "--if-exists", "append").code == 2
    assert run(*again, "--if-exists", "replace").code == 2
    assert run(*again, "--dry-run").code == 1


def test_an_address_is_no_store() -> None:
    for address in ("http://localhost:8000", "https://example.org/x", "s3://bucket/store"):
        with pytest.raises(InvalidArgument, match="a store is a directory"):
            chronicle.open(address)
    assert not Path("http:").exists()


def test_names_of_answers_say_known_formats(run: Run, sensors: Path, tmp_path: Path) -> None:
    for name in ("x.xlsx", "x.tsv", "x.txt", "x.geojson", "x.csv2"):
        outcome = run("sql", "-o", name, "SELECT x FROM sensors")
        assert outcome.code == 2, name
        assert "says no format" in outcome.err
        assert not (tmp_path / name).exists()
    assert run("sql", "-f", "csv", "-o", "x.txt", "SELECT x FROM sensors LIMIT 1").code == 0
    assert (tmp_path / "x.txt").read_bytes() == b"x\n0.5\n"
    for name in ("x.arrow", "x.feather", "x.ipc"):
        assert run("sql", "-o", name, "SELECT x FROM sensors").code == 0
        with pa.ipc.open_file(tmp_path / name) as reader:
            assert reader.read_all().num_rows == 10
        outcome = run("ingest", name, "--stream", name[2:], "--time", "x", "--create")
    assert run("sql", "-o", "x.arrows", "SELECT x FROM sensors").code == 0
    with pa.ipc.open_stream(tmp_path / "x.arrows") as reader:
        assert reader.read_all().num_rows == 10


def test_hints_are_in_the_words_of_the_command_line(run: Run, sensors: Path) -> None:
    outcome = run("sql", "SELECT * FROM sensors WHERE x > $low")
    assert outcome.code == 1
    assert "-p NAME=VALUE" in outcome.err
    assert "params" not in outcome.err


def shown(table: pa.Table, width: int) -> tuple[str, int]:
    from rich.console import Console

    from chronicle.commands.tables import terminal_table

    drawn, _, _, hidden = terminal_table(table.to_batches(), table.schema, 100, width)
    out = io.StringIO()
    Console(file=out, width=width).print(drawn)
    return out.getvalue(), hidden


@pytest.mark.parametrize("width", [30, 60, 80, 100, 200])
def test_a_narrow_terminal_cuts_no_number(width: int) -> None:
    columns = {
        "timestamp": pa.array([1533099600000000], pa.timestamp("us")),
        "altitude": [38000.0],
        "callsign": ["a call sign that is longer than others"],
        "groundspeed": [451.123456789],
        "icao24": ["4b1803"],
        "latitude": [47.123456789012],
        "longitude": [8.987654321098],
        "track": [123456789012],
        "verticalrate": [-64.0],
    }
    text, hidden = shown(pa.table(columns), width)
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines)
    assert ("…" in text) == (hidden > 0)
    assert hidden == 0 or width < 200
    whole = ["2018-08-01 05:00:00", "38000.0", "451.123456789", "47.123456789012"]
    whole += ["8.987654321098", "123456789012", "-64.0"]
    numbers = re.findall(r"[-\d][-\d.: ]*[\d]", "\n".join(line for line in lines if "│" in line))
    assert {number for number in numbers if "." in number or len(number) > 8} <= set(whole)
    assert "2018-08-01 05:00:00" in text
