"""docs/first-steps.md: each command is run, in order, and prints what the page says.

``CHRONICLE_GOLDEN=rewrite`` writes what the commands print now into the page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import chronicle

PAGE = Path(chronicle.__file__).parent / "docs" / "first-steps.md"
REWRITE = os.environ.get("CHRONICLE_GOLDEN") == "rewrite"
BLOCK = re.compile(r"```console\n(.*?)```\n", re.DOTALL)
MACHINE = (
    (re.compile(r"\([\d.]+ s, [\d.,]+ [kM]?B/s\)"), "(0.4 s, 3 MB/s)"),
    (re.compile(r"[\d.]+ ms"), "1 ms"),
)
"""What differs between machines, and what the page has in its place."""


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with what is printed below it."""
    found: list[tuple[str, str]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line, ""))
        elif line.startswith(">"):
            found[-1] = (f"{found[-1][0]}\n{line}", "")
        else:
            command, printed = found[-1]
            found[-1] = (command, f"{printed}{line}\n")
    return found


def printed_by(command: str, place: Path) -> str:
    script = re.sub(r"^(\$ |> ?)", "", command, flags=re.MULTILINE)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "120"}
    environment.pop("CHRONICLE_STORE", None)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=place,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    printed = done.stdout
    for what, instead in MACHINE:
        printed = what.sub(instead, printed)
    return printed


def test_the_first_steps_can_be_taken(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    written = page
    for block in BLOCK.findall(page):
        now = "".join(
            f"{command}\n{printed_by(command, tmp_path)}" for command, _ in commands(block)
        )
        written = written.replace(block, now, 1)
    if REWRITE:
        PAGE.write_text(written, encoding="utf-8")
    assert written == page
