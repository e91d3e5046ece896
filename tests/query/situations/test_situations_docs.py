"""docs/situations.md is true: its examples run, and its drawings are those of the relations."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

import chronicle
from chronicle.query.situations.network import NAMES, relation_of

PAGE = (Path(__file__).parents[3] / "docs" / "situations.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def within(ticks: int, low: int, high: int, inside: float, outside: float) -> list[float]:
    return [inside if low <= t < high else outside for t in range(ticks)]


def test_the_examples_give_what_the_page_says(tmp_path: Path) -> None:
    seconds = pa.array(range(200), pa.int64()).cast(pa.timestamp("s"))
    accel = within(200, 2, 8, 9, 0)
    accel[17:22] = [-10] * 5
    streams = {
        "cars": {"car_id": ["x"] * 200, "accel": accel, "speed": within(200, 6, 20, 80, 50)},
        "hosts": {
            "host": ["h"] * 200,
            "cpu": within(200, 20, 50, 95, 5),
            "queue": within(200, 10, 999, 200, 0),
        },
        "weather": {
            "rain": within(200, 100, 160, 1, 0),
            "temperature": within(200, 120, 999, -1, 4),
        },
    }
    found = []
    with chronicle.open(tmp_path) as db:
        for name, columns in streams.items():
            table = pa.table({"t": seconds, **columns})
            db.create_stream(name, table.schema, time="t").append(table)
        for block in blocks("sql"):
            texts = filter(str.strip, block.split(";\n"))
            found += [db.sql(text.rstrip().rstrip(";")).fetchall() for text in texts]
        db.run_live()
        found[-1] = db.sql("SELECT * EXCLUDE (_time, _id, _rev) FROM NET(alarms)").fetchall()
    shown = [[tuple(map(seconds_of, row)) for row in rows] for rows in found]
    assert shown == [
        [("x", 80.0, 20)], [("h", 30, None)], [(50, 20)], [(100, None, 120, None)],
        [("h", 20, None, 10, None)],
    ]  # fmt: skip


def seconds_of(value: Any) -> Any:
    """Seconds since midnight of a time; other values as they are."""
    return value.minute * 60 + value.second if isinstance(value, dt.datetime) else value


def test_the_drawings_show_the_relations() -> None:
    lines = blocks("text")[0].split("\n")
    drawn = {}
    for first, second in zip(lines[::2], lines[1::2], strict=False):
        name = re.match(r"A ([A-Z]+) B", first)
        if name is None:
            continue
        a, b = (re.search(rf"(?<= ){letter}+(?= |$)", line[16:]) for line, letter in
                ((first, "A"), (second, "B")))  # fmt: skip
        assert a, first
        assert b, second
        drawn[name[1]] = NAMES[relation_of(a.span(), b.span())]
    assert drawn == {name: name for name in drawn}
    assert len(drawn) == 7
    for name in NAMES:
        assert name in PAGE
