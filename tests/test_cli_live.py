"""``chronicle tail`` and ``chronicle live``, on a store and through a server."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle import cli
from chronicle.errors import SnapshotExpired
from chronicle.tests.server.conftest import live as live_server  # noqa: F401

SCHEMA = pa.schema([pa.field("t", pa.int64(), False), pa.field("n", pa.int64())])
SELECT = "SELECT t, n FROM s WHERE n > 2"


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setenv("CHRONICLE_STORE", str(tmp_path / "st"))

    def command(*arguments: str) -> tuple[int, str, str]:
        capfdbinary.readouterr()
        code = cli.run(list(arguments))
        sys.stdout.flush()
        out, error = capfdbinary.readouterr()
        return code, out.decode(), error.decode()

    return command


@pytest.fixture
def rows(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "st") as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        stream.append([{"t": t, "n": t % 5} for t in range(20)])
        stream.append([{"t": 3, "n": 9}])


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.usefixtures("rows")
def test_tail_of_a_store(run: Any) -> None:
    code, out, _ = run("tail", "s", "-n", "2", "-f", "ndjson")
    assert (code, lines(out)) == (0, [{"t": 18, "n": 3}, {"t": 19, "n": 4}])
    code, out, _ = run("tail", "s", "--where", "n > 5", "--columns", "n")
    assert (code, out.split()) == (0, ["n", "-", "9"])
    code, out, _ = run("tail", "s", "--after", "1", "-f", "csv")
    assert (code, out) == (0, "t,n\n3,9\n")
    assert run("tail", "s", "--after", "0", "-f", "ndjson", "--where", "n = 9")[1] == (
        '{"t":3,"n":9}\n'
    )
    for wrong in (("-f", "json"), ("-n", "1", "--follow"), ("--after", "soon"), ("--where", "x >")):
        code, _, error = run("tail", "s", *wrong)
        assert code in (1, 2), wrong
        assert error.startswith("error:"), error
    assert run("tail", "nobody")[0] == 1


@pytest.mark.usefixtures("rows")
def test_live_queries_of_a_store(run: Any) -> None:
    assert run("live", "create", "high", SELECT, "--idle", "0 seconds")[:2] == (
        0,
        "live query high created\n",
    )
    assert run("live", "create", "high", SELECT)[0] == 1
    assert run("live", "create", "high", SELECT, "--if-not-exists")[0] == 0
    told = lines(run("live", "tail", "high", "-f", "ndjson")[1])
    assert [row["_seq"] for row in told] == list(range(1, len(told) + 1))
    assert sorted(row["n"] for row in told) == sorted([3, 4] * 4 + [9])
    assert lines(run("live", "tail", "high", "--after", "8", "-f", "ndjson")[1]) == told[8:]
    listed = lines(run("live", "list", "-f", "ndjson")[1])
    assert [row["name"] for row in listed] == ["high"]
    assert SELECT in run("live", "show", "high")[1]
    assert run("live", "pause", "high")[:2] == (0, "live query high paused\n")
    assert run("live", "resume", "high")[0] == 0
    assert run("live", "refresh", "high", "--from", "0", "--to", "10")[0] == 0
    assert run("live", "verify", "high")[:2] == (0, "live query high: every row is right\n")
    code, _, error = run("live", "create", "bad", "SELECT t FROM s LIMIT 3")
    assert code != 0
    assert "LIMIT" in error
    assert run("live", "drop", "high")[0] == 0
    assert run("live", "show", "high")[0] == 1
    assert run("streams", "-f", "ndjson")[1].count("\n") == 1


@pytest.mark.usefixtures("rows")
def test_through_a_server(run: Any, tmp_path: Path, live_server: Any) -> None:  # noqa: F811
    with chronicle.open(tmp_path / "st", live=True) as database:
        served = live_server(database)
        url = ("--url", f"http://127.0.0.1:{served.port}")
        assert lines(run("tail", "s", "-n", "1", "-f", "ndjson", *url)[1]) == [{"t": 19, "n": 4}]
        assert run("tail", "s", "--after", "1", "-f", "csv", *url)[1] == "t,n\n3,9\n"
        made = run("live", "create", "high", SELECT, "--idle", "0 seconds", *url)
        assert made[0] == 0, made
        database.run_live()
        told = lines(run("live", "tail", "high", "-f", "ndjson", *url)[1])
        assert len(told) == 9
        assert "high" in run("live", "list", *url)[1]
        assert SELECT in run("live", "show", "high", *url)[1]
        for words in (("pause",), ("resume",), ("refresh", "--from", "1"), ("verify",), ("drop",)):
            outcome = run("live", words[0], "high", *words[1:], *url)
            assert outcome[0] == 0, outcome
        assert run("live", "verify", "high", *url)[0] == 1

        remote = chronicle.connect(f"http://127.0.0.1:{served.port}").stream("s")
        feed = remote.tail("0", where="n > 2", columns=["n"])
        rows = iter(feed)
        assert sum(len(next(rows)) for _ in range(1)) > 0
        served.app.state.server.running.cancel_all()  # as when the connection is lost
        database.stream("s").append([{"t": 100, "n": 50}])
        found: list[int] = []
        while 50 not in found:
            found += next(rows).column("n").to_pylist()
        assert found.count(50) == 1
        rows.close()  # type: ignore[attr-defined]
        with pytest.raises(SnapshotExpired):
            remote.tail("999")
