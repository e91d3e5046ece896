"""Live queries that read several streams: watermarks, marks, late events, who may be dropped."""

from __future__ import annotations

from chronicle.live.definition import LiveDefinition
from chronicle.live.sink import Mark


def test_what_was_written_of_one_source_is_read() -> None:
    """Definitions and marks of before there were several."""
    definition = LiveDefinition("q", "SELECT t FROM s", ("s",), "q")
    body = definition.to_json()
    del body["sources"]
    assert LiveDefinition.from_json({**body, "source": "s"}) == definition
    mark = Mark.of({"position": 7, "watermark": 5, "events": 9, "windows": 0, "step": 2}, ["s"])
    assert mark == Mark({"s": 7}, 5, {"s": 9}, 0, 2)
