"""Write into tests/costs.md what the tests cost, from ``pytest --costs FILE``.

    .venv/bin/python -m pytest -m "not bench" --costs costs.jsonl     # one process, a quiet machine
    .venv/bin/python tools/test_costs.py costs.jsonl

CPU seconds by folder and kind, and of the 100 most expensive tests with their mutants.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

from chronicle.tools.mutants.run import ROOT, load_mutants

PAGE = ROOT / "tests" / "costs.md"
MARK = "<!-- tools/test_costs.py writes what follows -->\n"
KINDS = ("plain", "service", "socket", "process", "workers", "browser", "spark")


def main(path: str) -> None:
    """Replace the text after the mark in the page."""
    lines = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    page = PAGE.read_text(encoding="utf-8")
    text = page[: page.index(MARK) + len(MARK)] + _by_folder(lines) + _dearest(lines)
    PAGE.write_text(text, encoding="utf-8")


def _by_folder(lines: list[dict[str, object]]) -> str:
    cells: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for line in lines:
        file = Path(str(line["test"]).partition("::")[0])
        folder = file.parts[1] if len(file.parts) > 2 else "(files of tests/)"
        for row in (folder, "**all**"):
            for column in (str(line["kind"]), "all"):
                cells[row, column][0] += 1
                cells[row, column][1] += float(str(line["processor"]))
    rows = sorted({row for row, _ in cells}, key=lambda row: -cells[row, "all"][1])
    head = ["folder", *KINDS, "all"]
    text = "\n| " + " | ".join(head) + " |\n|---|" + "--:|" * (len(head) - 1) + "\n"
    for row in rows:
        here = [cells.get((row, column)) for column in head[1:]]
        text += f"| {row} | " + " | ".join(f"{c[1]:.0f} s / {c[0]:,}" if c else "" for c in here)
        text += " |\n"
    return text


def _dearest(lines: list[dict[str, object]]) -> str:
    named: dict[str, int] = defaultdict(int)
    for mutant in load_mutants():
        for name in {test.partition("::")[0] for test in mutant.tests}:
            named[f"tests/{name}"] += 1
    dear = sorted(lines, key=lambda line: -float(str(line["processor"])))[:100]
    text = "\n| s | kind | mutants | test |\n|--:|---|--:|---|\n"
    for line in dear:
        name = str(line["test"])
        mutants = named.get(name.partition("::")[0], 0)
        shown = name.removeprefix("tests/").replace("|", "\\|")
        text += f"| {line['processor']:.1f} | {line['kind']} | {mutants} | {shown} |\n"
    return text


if __name__ == "__main__":
    main(sys.argv[1])
