"""Commands that look after a store, and answers that go elsewhere than to a new file."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import threading
from pathlib import Path

import pytest

import chronicle
from chronicle.tests.patience import PATIENCE_S

from .conftest import Run


@pytest.fixture
def readings(run: Run, tmp_path: Path) -> None:
    """A stream of ten sealed events."""
    lines = [f"2020-01-{day:02},{day / 2}" for day in range(1, 11)]
    (tmp_path / "a.csv").write_text("\n".join(["t,x", *lines]) + "\n")
    assert run("ingest", "a.csv", "--stream", "a/b", "--time", "t", "--create")[0] == 0
    with chronicle.open("st") as database:
        database.stream("a/b").seal()


@pytest.mark.usefixtures("readings")
def test_indexes_are_listed_with_what_they_cover(run: Run) -> None:
    assert run("index", "create", "a/b", "x", "--lag-events-max", "500")[0] == 0
    code, out, _ = run("index", "list", "--format", "json")
    (found,) = json.loads(out)
    size = found.pop("bytes")
    assert size > 0
    expected = {"stream": "a/b", "attribute": "x", "state": "ready", "covered": 1.0, "runs": 1}
    expected["problem"] = None
    assert (code, found) == (0, expected)
    shown = json.loads(run("sql", "-f", "json", "SHOW INDEXES")[1])
    assert shown == [{**expected, "bytes": size}]
    with chronicle.open("st", "r") as database:
        assert database.stream("a/b").indexes()[0]["lag_events_max"] == 500


@pytest.mark.parametrize(
    "command",
    [
        ["compact"],
        ["compact", "s"],
        ["check", "--repair"],
        ["index", "create", "s", "x"],
        ["index", "drop", "s", "x"],
        ["backup", "copy"],
    ],
)
def test_a_store_that_is_not_there_is_not_made(run: Run, command: list[str]) -> None:
    code, _, err = run(*command)
    assert code == 1
    assert "there is no store at st" in err
    assert not Path("st").exists()


@pytest.mark.usefixtures("readings")
def test_backups_are_listed(run: Run) -> None:
    assert run("backup", "kept/monday")[0] == 0
    code, out, _ = run("backups", "kept", "--format", "json")
    (told,) = json.loads(out)
    assert code == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told.pop("made"))
    assert told.pop("bytes") > 0
    assert told == {"name": "monday", "state": "whole", "events": 10, "streams": "a/b 10"}
    Path("kept/monday/streams/a%2Fb/MANIFEST").write_text("{}")
    code, out, err = run("backups", "kept")
    assert (code, "damaged" in out) == (0, True)
    assert "monday: " in err
    assert run("backups")[0] == run("backups", "kept", "--url", "http://127.0.0.1:1")[0] == 2
    code, _, err = run("backups", "nowhere")
    assert (code, "'nowhere': No such file" in err) == (2, True)


@pytest.mark.usefixtures("readings")
def test_backups_in_objects(run: Run, tmp_path: Path) -> None:
    address = f"file://{tmp_path}/objects"
    for name in ("monday", "tuesday"):
        assert run("backup", address, "--name", name)[0] == 0
    told = json.loads(run("backups", address, "--format", "json")[1])
    assert [(each["name"], each["state"], each["events"]) for each in told] == [
        ("monday", "whole", 10),
        ("tuesday", "whole", 10),
    ]
    assert run("backups", address, "--verify", "monday")[:2] == (
        0, "monday: every byte is as it was written\n",
    )  # fmt: skip
    code, out, _ = run("restore", address, "--backup", "monday", "--store", "again")
    assert (code, "backup monday of " in out, "a/b: 10 events" in out) == (0, True, True)
    code, out, _ = run("restore", address, "--store", "newest")
    assert (code, "backup tuesday of " in out) == (0, True)
    counted = ("sql", "-f", "csv", 'SELECT count(*) AS n FROM "a/b"', "--store")
    assert run(*counted, "again")[1] == run(*counted, "newest")[1] == "n\n10\n"
    code, out, _ = run("backups", address, "--remove", "monday")
    assert (code, out[:15]) == (0, "monday: removed")
    file = max((tmp_path / "objects" / "bytes").iterdir(), key=lambda each: each.stat().st_size)
    file.write_bytes(bytes(file.stat().st_size))
    code, _, err = run("backups", address, "--verify", "tuesday")
    assert (code, file.name in err) == (1, True)
    for arguments in (
        ("backup", address, "--name", "tuesday"),
        ("backup", address, "--name", "a/b"),
        ("backup", "copy", "--name", "x"),
        ("backups", address, "--remove", "monday"),
        ("backups", address, "--remove", "tuesday", "--verify", "tuesday"),
        ("backups", str(tmp_path), "--verify", "tuesday"),
        ("restore", address, "--backup", "monday", "--store", "third"),
        ("restore", address, "--backup", "tuesday", "--store", "third"),
    ):
        code, _, told = run(*arguments)
        assert (code != 0, "Traceback" in told) == (True, False), arguments


@pytest.mark.usefixtures("readings")
def test_moved_segments_and_backups_at_one_address(run: Run, tmp_path: Path) -> None:
    address = f"file://{tmp_path}/objects"
    assert run("move", address)[0] == run("backup", address, "--name", "x")[0] == 0
    code, out, err = run("restore", address, "--store", "moved")
    assert (code, "1 segments restored" in out, "--backup NAME" in err) == (0, True, True)
    assert run("restore", address, "--backup", "x", "--store", "backup")[0] == 0


def test_a_file_that_is_no_segment_is_told_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.seg").write_bytes(b"too short")
    code, _, err = run("inspect", "x.seg")
    assert code == 2
    assert "x.seg is no segment file: it has 9 bytes" in err


@pytest.mark.usefixtures("readings")
def test_an_answer_goes_into_a_pipe_that_is_there(run: Run) -> None:
    os.mkfifo("pipe")
    taken: list[bytes] = []
    reader = threading.Thread(target=lambda: taken.append(Path("pipe").read_bytes()))
    reader.start()
    assert run("sql", "-f", "csv", "-o", "pipe", 'SELECT x FROM "a/b" LIMIT 2')[0] == 0
    reader.join(PATIENCE_S)
    assert taken[0].split() == [b"x", b"0.5", b"1.0"]
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)


def test_an_interrupt_that_a_library_falls_over_is_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def library(*arguments: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise AttributeError("partially initialized module") from None

    def other(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("chronicle.commands.options.connection_of", library)
    before = signal.getsignal(signal.SIGINT)
    try:
        for handler in (signal.default_int_handler, other):  # Spark brings its own
            signal.signal(signal.SIGINT, handler)
            assert run("streams") == (130, "", "interrupted\n")
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("readings")
def test_an_answer_follows_a_link(run: Run) -> None:
    Path("real.csv").write_text("old")
    Path("link.csv").symlink_to("real.csv")
    assert run("sql", "-o", "link.csv", 'SELECT x FROM "a/b" LIMIT 1')[0] == 0
    assert Path("link.csv").is_symlink()
    assert Path("real.csv").read_text() == "x\n0.5\n"


@pytest.mark.usefixtures("readings")
def test_an_answer_that_finds_no_space_fails(run: Run) -> None:
    if not stat.S_ISCHR(os.stat("/dev/full").st_mode):
        pytest.skip("/dev/full is no device here")
    code, _, err = run("sql", "-f", "csv", "-o", "/dev/full", 'SELECT x FROM "a/b"')
    assert (code, err) == (1, "error: cannot write '/dev/full': No space left on device\n")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


@pytest.mark.usefixtures("readings")
def test_segments_move_and_a_lost_disk_is_restored(run: Run, tmp_path: Path) -> None:
    address = f"file://{tmp_path}/objects"
    code, out, told = run("move", address, "--older-than", "3 seconds")
    assert (code, "a/b: 0 segments" in out) == (0, True)
    assert "no sealed segment is old enough" in told
    code, out, told = run("move", address, "--stream", "a/b")
    assert (code, "a/b: 1 segments" in out, told) == (0, True, "")
    shown = run("sql", "-f", "csv", 'SELECT sum(x) AS x FROM "a/b" WHERE x > 1')[1]
    assert run("check")[0] == 0
    code, out, _ = run("restore", address, "--store", "again")
    assert (code, "a/b: 1 segments restored" in out) == (0, True)
    asked = ("sql", "-f", "csv", 'SELECT sum(x) AS x FROM "a/b" WHERE x > 1', "--store", "again")
    assert run(*asked)[1] == shown
    for arguments in (
        ("move", "ftp://somewhere"),
        ("move", address, "--older-than", "soon"),
        ("move", address, "--stream", "nothing"),
        ("restore", address, "--store", "again"),
        ("restore", f"file://{tmp_path}/nowhere", "--store", "third"),
    ):
        code, _, told = run(*arguments)
        assert (code != 0, "Traceback" in told) == (True, False), arguments
