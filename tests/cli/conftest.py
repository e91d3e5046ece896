"""Commands run in this process, and a small store for them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from chronicle import cli

Run = Callable[..., "Outcome"]


class Outcome(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


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
