"""Write ``docs/pictures/pattern.svg`` (``make pictures``): matches and history map of the demo.

The figure is drawn from a store with the events, indexes and pattern of ``chronicle demo``; a test
compares it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import chronicle
from chronicle.commands.demonstrate import PATTERN, SCHEMA, STREAM, factory_events
from chronicle.drawing.matches import (
    HEIGHT,
    QUIET,
    history_parts,
    matches_of,
    matches_parts,
)
from chronicle.formats.plots import sheet, text

EVENTS = 2_000_000
WIDTH = 860
PLACE = Path(__file__).parent.parent / "docs" / "pictures" / "pattern.svg"
_LINE = 17


def picture(events: int = EVENTS) -> str:
    with tempfile.TemporaryDirectory() as place, chronicle.open(place) as database:
        stream = database.create_stream(STREAM, SCHEMA, time="time")
        stream.append(factory_events(events))
        stream.create_index("vibration")
        stream.create_index("temperature")
        matches = matches_of(database, PATTERN)
        plan = database.explain(PATTERN)
        regions = next(step.regions for step in plan.operators() if step.regions is not None)
    mono = ' font-family="ui-monospace, monospace" font-size="12.5" xml:space="preserve"'
    parts = [
        text(line, 14, 26 + _LINE * at, more=mono) for at, line in enumerate(PATTERN.split("\n"))
    ]
    top = 26 + _LINE * PATTERN.count("\n") + 14
    caption = f"What of the {events:,} events was read for that"
    lanes, below = matches_parts(matches, WIDTH, top)
    parts += [*lanes, text(caption, 12, below + 14, colour=QUIET)]
    strip, summary = history_parts(regions, 12, WIDTH - 12, below + 24)
    title = f"{len(matches.spans)} matches of a pattern over time; history map: {summary}"
    return sheet(WIDTH, round(below + 24 + HEIGHT), title, [*parts, *strip])


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit("tools/pictures.py takes nothing")
    PLACE.parent.mkdir(exist_ok=True)
    PLACE.write_text(picture(), encoding="utf-8")
    print(PLACE)
