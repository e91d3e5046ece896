"""docs/benchmarks.md links every file of bench/results, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chronicle.bench import harness
from chronicle.bench.__main__ import BENCHMARKS

ROOT = Path(__file__).parent.parent


def test_the_page_links_every_result() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(\.\./bench/results/(\w+)\.md\)", page))
    stored = {path.stem for path in harness.RESULTS.glob("*.md")}
    assert linked == stored
    assert stored <= set(BENCHMARKS)


def test_pictures_of_results_are_there() -> None:
    for path in harness.RESULTS.glob("*.md"):
        for name in re.findall(r"\]\((figures/[^)]+)\)", path.read_text(encoding="utf-8")):
            assert (harness.RESULTS / name).is_file(), f"{path.name}: {name}"


def test_notes_written_by_hand_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results")
    harness.write_section("one", harness.Section("One", "first"))
    path = tmp_path / "results" / "one.md"
    path.write_text(path.read_text() + "\n## Notes\n\n- by hand\n")
    harness.write_section("one", harness.Section("One", "second"))
    text = path.read_text()
    assert "second" in text
    assert "first" not in text
    assert text.endswith("\n## Notes\n\n- by hand\n")
