"""docs/architecture.md is true: one event goes from POST to leaf by the functions that it names."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import chronicle

ROOT = Path(chronicle.__file__).parent


def walk() -> list[tuple[str, str]]:
    """Functions of the walk with their files, in the order of the page."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## An event's way in")[2].partition("\n## ")[0]
    steps = []
    for file, names in re.findall(r"^\| `([\w/]+\.py)` \| ([^|]*) \|", section, re.MULTILINE):
        steps += [(file, name) for name in re.findall(r"`([\w.]+)`", names)]
    return steps


def test_an_event_takes_the_way_that_the_page_describes(
    tmp_path: Path, serve_app: Callable[..., Any]
) -> None:
    steps = walk()
    assert len(steps) > 18
    wanted, called = set(steps), []
    done = threading.Event()

    def note(frame: FrameType, event: str, _: object) -> None:
        if done.is_set():
            sys.setprofile(None)
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)):
            call = (code.co_filename[len(str(ROOT)) + 1 :], code.co_qualname)
            if call in wanted:
                called.append(call)

    body = "".join(f'{{"t": {n}, "x": {n % 7}}}\n' for n in range(20000))
    with chronicle.open(tmp_path / "store") as database:
        database.sql(
            "CREATE STREAM s (t BIGINT, x DOUBLE) TIMESTAMP BY t WITH (leaf_bytes = 16384)"
        )
        threading.setprofile(note)
        try:
            client = serve_app(database, isolation="none")  # a worker cannot be followed
            called.clear()
            for content in ('{"t": 0, "x": 1}', body):
                answer = client.post(
                    "/v1/streams/s/events",
                    content=content,
                    headers={
                        "Content-Type": "application/x-ndjson",
                        "Idempotency-Key": str(len(content)),
                    },
                )
        finally:
            done.set()
            threading.setprofile(None)
    assert answer.status_code == 200, answer.text
    never = wanted - set(called)
    assert not never, f"the page names what is not called: {never}"
    calls = iter(called)
    late = next((step for step in steps if step not in calls), None)
    assert late is None, f"not called after what stands above it: {late}"
