"""The other commands, and the manual, which has all of them."""

from __future__ import annotations

import http.server
import json
import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle import cli

from .conftest import Run

ROOT = Path(__file__).resolve().parents[2]


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
    listed = re.findall(r"^(\w+):$|^  (\w+)  ", top.out, re.MULTILINE)
    names = [group or command for group, command in listed]
    for group, commands in cli.GROUPS.items():
        assert set(commands) <= set(names[names.index(group) + 1 :])
    assert "..." not in top.out.partition("Data:")[2]


def test_the_first_options_of_ingest_are_those_of_every_day(run: Run) -> None:
    sections = re.split(r"^(\w[\w ]*):$", run("ingest", "--help").out, flags=re.MULTILINE)
    options = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert re.findall(r"^  --([\w-]+)", options["Options"], re.MULTILINE) == [
        "stream", "time", "time-format", "types", "create", "dry-run", "bad-rows", "url", "token"
    ]  # fmt: skip
    assert list(options)[2:] == [
        "Columns and times", "What to read", "How to store", "Errors and reports"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "meant"),
    [("ls", "streams"), ("query", "sql"), ("import", "ingest"), ("serv", "serve")],
)
def test_near_names_of_commands(run: Run, name: str, meant: str) -> None:
    outcome = run(name)
    assert outcome.code == 2
    assert f"Did you mean '{meant}'?" in outcome.err


def test_other_names_mean_commands() -> None:
    assert set(cli.MEANT.values()) <= set(cli.COMMANDS)
    assert not set(cli.MEANT) & set(cli.COMMANDS)


def test_without_a_command_the_next_step(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chronicle.commands.start.SERVER", ("127.0.0.1", 1))
    assert "chronicle demo" in run().out
    (tmp_path / "my data.csv").write_text("when;v\n01.02.2026 13:00;1\n")
    (tmp_path / "broken.json").write_text("{")
    said = run()
    assert said.code == 0
    assert "2 files (broken.json, my data.csv)" in said.out
    (tmp_path / "broken.json").unlink()
    (command,) = re.findall(r"chronicle (ingest .*)", run().out)
    assert run(*shlex.split(command)).code == 0
    said = run()
    assert "has 1 stream (my data)" in said.out
    assert "to load" not in said.out
    assert run("describe", "my data").code == 0


def test_a_spreadsheet_export_is_read_as_proposed(run: Run, tmp_path: Path) -> None:
    text = "Datum;Uhrzeit;Gerät;Wert\n31.01.2026;13:05;Kühler;12,56\n"
    (tmp_path / "export.csv").write_text(text, encoding="windows-1252")
    (command,) = re.findall(r"chronicle (ingest .*)", run().out)
    refused = run("ingest", "export.csv", "--stream", "export", "--create")
    assert refused.code == 2
    (options,) = re.findall("export.csv can be read with (.*)", refused.err)
    assert options in command
    assert run(*shlex.split(command)).code == 0
    rows = run("sql", "SELECT * FROM export", "-f", "csv").out.splitlines()
    assert rows[1] == "2026-01-31 13:05:00,Kühler,12.56"


def test_without_a_command_a_server_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Healthy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"status": "ok", "version": "1"}')

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        place = ("127.0.0.1", server.server_port)
        monkeypatch.setattr("chronicle.commands.start.SERVER", place)
        assert f"chronicle streams --url http://127.0.0.1:{place[1]}" in run().out


def test_demo(run: Run, tmp_path: Path) -> None:
    outcome = run("demo", "--events", "20000", "--store", "demo", "--no-spark")
    assert outcome.code == 0, outcome.err
    assert "Generate 20,000 events of 40 machines" in outcome.out
    assert "all is well" in outcome.out
    assert outcome.out.count(": the same rows") == 3
    assert re.search(r"!! press-00 shook at [\d:]+ and was hot at [\d:]+: reported", outcome.out)
    assert "20004" in run("sql", "--store", "demo", "SELECT count(*) FROM machines").out
    assert run("demo", "--store", "demo").code == 2


def test_the_factory_is_the_same_every_time() -> None:
    from chronicle.commands.demonstrate import SCHEMA, factory_events

    table = factory_events(10_000)
    assert table.schema.equals(SCHEMA)
    assert table.equals(factory_events(10_000))
    assert not table.equals(factory_events(10_000, seed=1))
    ticks = table["time"].cast(pa.int64()).to_numpy()
    assert bool(np.all(ticks[1:] >= ticks[:-1]))
    assert set(table["state"].to_pylist()) >= {"idle", "running"}


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

    yield from walk(typer.main.get_command(cli.app_of(())), "")


@pytest.mark.parametrize(("name", "options"), list(commands()))
def test_the_manual_has_every_command_and_option(name: str, options: list[str]) -> None:
    manual = (ROOT / "docs" / "cli.md").read_text()
    assert f"## chronicle {name.split()[0]}" in manual
    assert f"chronicle {name}" in manual
    section = manual.split(f"## chronicle {name.split()[0]}", 1)[1].split("\n## ", 1)[0]
    shared = manual.split("## What all commands share", 1)[1].split("\n## ", 1)[0]
    for option in options:
        assert f"`{option}" in section or f"`{option}" in shared, option
