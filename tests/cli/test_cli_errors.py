"""One clear error, the right exit code, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

import chronicle

from .conftest import Run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "No such command"),
        (["sql", "--nothing"], "No such option"),
        (["ingest", "f.csv"], "Missing option '--stream'"),
        (["ingest", "gone.csv", "--stream", "s", "--time", "t", "--create"], "there is no file"),
        (["ingest", "*.csv", "--stream", "s", "--time", "t", "--create"], "no file matches"),
        (["ingest", "-", "--stream", "s", "--on-error", "hope"], "--bad-rows is one of"),
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

    monkeypatch.setattr("chronicle.commands.options.Connection.database", broken)
    outcome = run("streams")
    assert outcome.code == 1
    assert "something unexpected happened: ZeroDivisionError inside" in outcome.err
    monkeypatch.setenv("CHRONICLE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run("streams")


def test_hints_are_in_the_words_of_the_command_line(run: Run, sensors: Path) -> None:
    outcome = run("sql", "SELECT * FROM sensors WHERE x > $low")
    assert outcome.code == 1
    assert "-p NAME=VALUE" in outcome.err
    assert "params" not in outcome.err
