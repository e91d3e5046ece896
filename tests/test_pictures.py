"""The picture of README.md is what the demo's own events give."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_picture_is_the_one_that_the_demo_draws() -> None:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "tools" / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    drawn = pictures.PLACE.read_text(encoding="utf-8")
    assert drawn == pictures.picture(), "make pictures; look at it"
    assert f"({pictures.PLACE.relative_to(ROOT)})" in (ROOT / "README.md").read_text("utf-8")
