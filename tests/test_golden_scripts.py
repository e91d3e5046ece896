"""Golden scripts: SQL, the plan that runs, the rows that come, as text files to browse.

Purpose
    ``tests/golden/*.txt`` are written to be read; ``tests/golden/README.md`` explains the lines.
    Each is run here on a store of its own and must print what stands in it.
    ``CHRONICLE_GOLDEN=rewrite`` (``make golden``) writes the files instead of comparing them.

Limits
    Plans are shown without what depends on the machine: times, costs, bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

import chronicle
from chronicle.api.database import Database
from chronicle.errors import ChronicleError

SCRIPTS = Path(__file__).parent / "golden"
REWRITE = os.environ.get("CHRONICLE_GOLDEN") == "rewrite"
STATEMENT = re.compile(r"^(plan|analyze)?> ?")
MACHINE = re.compile(r"\bms\b|\bbytes\b")
"""What a figure or detail of a plan is about when it differs between machines."""


def blocks(text: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Cut a script into (kind, input lines, printed lines).

    The kind is ``#`` for a remark, ``!`` for a step on the store, else the statement's prefix.
    """
    for paragraph in re.split(r"\n{2,}", text.strip("\n")):
        lines = paragraph.split("\n")
        if lines[0][:1] in "#!":
            yield lines[0][0], lines, []
            continue
        first = STATEMENT.match(lines[0])
        assert first, f"neither remark, step nor statement: {lines[0]!r}"
        count = 1
        while count < len(lines) and lines[count].startswith(">"):
            count += 1
        yield first[1] or "", lines[:count], lines[count:]


def shown(value: Any) -> str:
    """A value as a cell."""
    if value is None:
        return "NULL"
    if isinstance(value, datetime | date):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    return str(value) if value != "" else "''"


def table(names: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows below their names."""
    cells = [names, *([shown(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [" | ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return lines if rows else [lines[0], "(no rows)"]


def portable(plan: str) -> list[str]:
    """The lines of a plan without what depends on the machine."""
    lines = []
    for line in plan.split("\n"):
        head, actual, figures = line.partition("actual: ")
        if actual:
            kept = [item for item in figures.split(", ") if not MACHINE.search(item)]
            lines += [head + actual + ", ".join(kept)] if kept else []
        elif not MACHINE.search(line.partition(": ")[0]):
            lines.append(re.sub(r"[\d.,]+ ms", "... ms", line.rstrip()))
    return lines


def answer(db: Database, kind: str, text: str) -> list[str]:
    """What a statement prints."""
    try:
        if text.upper().startswith("EXPLAIN"):
            return portable("\n".join(row[0] for row in db.sql(text).fetchall()))
        plan = portable(str(db.explain(text, analyze=kind == "analyze"))) if kind else []
        result = db.sql(text).arrow()
    except ChronicleError as error:
        return [f"{type(error).__name__}: {error}"]
    rows = list(zip(*(column.to_pylist() for column in result.columns), strict=True))
    if result.schema.names in (["status"], ["count"]) and not text.upper().startswith("SELECT"):
        told = rows[0][0]
        return [told if isinstance(told, str) else f"{told} event{'s' * (told != 1)}"]
    return [*plan, *(["=>"] if plan else []), *table(result.schema.names, rows)]


def compact(db: Database, stream: str) -> None:
    db.stream(stream).compact()


def seal(db: Database, stream: str) -> None:
    db.stream(stream).seal()


def live(db: Database, _: str) -> None:
    db.run_live()


STEPS: dict[str, Callable[[Database, str], None]] = {"compact": compact, "seal": seal, "live": live}


def run(script: str, store: Path) -> str:
    """The script as it reads with what the code answers now."""
    written = []
    db = chronicle.open(store)
    try:
        for kind, given, _ in blocks(script):
            if kind == "!":
                for line in given:
                    step, _, rest = line.removeprefix("! ").partition(" ")
                    if step == "reopen":
                        db.close()
                        db = chronicle.open(store)
                    else:
                        STEPS[step](db, rest)
            text = "\n".join(STATEMENT.sub("", line) for line in given)
            told = [] if kind in ("#", "!") else answer(db, kind, text)
            written.append("\n".join([*given, *told]))
    finally:
        db.close()
    return "\n\n".join(written) + "\n"


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_golden_script_prints_what_stands_in_it(path: Path, tmp_path: Path) -> None:
    script = path.read_text(encoding="utf-8")
    printed = run(script, tmp_path / "store")
    if REWRITE:
        path.write_text(printed, encoding="utf-8")
    assert printed.split("\n") == (printed if REWRITE else script).split("\n")


def test_the_readme_lists_every_script_and_every_step() -> None:
    readme = (SCRIPTS / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\w+)\.txt\]\(\1\.txt\) \|", readme, re.MULTILINE)
    assert listed == sorted(path.stem for path in SCRIPTS.glob("*.txt"))
    assert set(re.findall(r"^\| `! (\w+)", readme, re.MULTILINE)) == {*STEPS, "reopen"}


def test_scripts_stay_short() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in SCRIPTS.glob("*.txt")}
    assert not [name for name, text in texts.items() if text.count("\n") > 130]
