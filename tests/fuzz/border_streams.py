"""Streams whose events lie at the ends of 64 bits, and statements over them.

Purpose
    The stream ``s`` of :mod:`.target` has ordinary times and values.  For each type of a time
    column there is a stream beside it, with the same columns, whose times, ``x`` and ``at`` are
    those of :data:`ENDS`; a seed draws which, and in which order.  :func:`over` has a statement of
    :class:`.grammar.Grammar` read such a stream instead of ``s``.
"""

from __future__ import annotations

import random
import re
from decimal import Decimal

import pyarrow as pa

from chronicle.api.database import Database
from chronicle.core.times import INT64_MAX, INT64_MIN

__all__ = ["ENDS", "TYPES", "border_events", "create_border_streams", "over"]

ENDS = (INT64_MIN, INT64_MIN + 1, -1, 0, INT64_MAX - 1, INT64_MAX)
EVENTS = 40
TYPES = {
    "e_n": "BIGINT",
    "e_s": "TIMESTAMP_S",
    "e_ms": "TIMESTAMP_MS",
    "e_us": "TIMESTAMP",
    "e_ns": "TIMESTAMP_NS",
}
"""Border streams and the types of their time columns."""
NUMBERS = ("9223372036854775807", "9223372036854775806", "-9223372036854775807",
           "-9223372036854775808", "-1", "0")  # fmt: skip
UNITS = {
    "e_s": ("SECOND", "DAY", "YEAR"),
    "e_ms": ("MILLISECOND", "HOUR", "YEAR"),
    "e_us": ("MICROSECOND", "DAY", "YEAR"),
    "e_ns": ("MICROSECOND", "HOUR", "DAY"),
}


def border_events(rng: random.Random, schema: pa.Schema) -> pa.Table:
    """Events of a border stream, sorted by time."""
    times = sorted(rng.choice(ENDS) for _ in range(EVENTS))
    key = [rng.choice(["a", "b", None, ""]) for _ in times]
    cents = [Decimal(rng.choice([-(10**10) + 1, -1, 0, 10**10 - 1])).scaleb(-2) for _ in times]
    columns = {
        "t": pa.array(times).cast(schema.field("t").type),
        "k": pa.array(key, pa.string()),
        "x": pa.array([rng.choice([*ENDS, None]) for _ in times], pa.int64()),
        "d": pa.array(cents, schema.field("d").type),
        "at": pa.array([rng.choice([*ENDS, None]) for _ in times], pa.int64()).cast(
            schema.field("at").type
        ),
        "flag": pa.array([rng.choice([True, False, None]) for _ in times]),
        "raw": pa.array([rng.choice([b"", b"\x00\xff", None]) for _ in times], pa.binary()),
    }
    return pa.table(columns).select(schema.names)


def create_border_streams(db: Database, seed: int) -> None:
    """Make and fill the streams of :data:`TYPES`."""
    rng = random.Random(seed)
    for name, type_ in TYPES.items():
        at = rng.choice([*TYPES.values()][1:])
        db.sql(
            f"CREATE STREAM {name} (t {type_}, k VARCHAR, x BIGINT, d DECIMAL(10, 2),"
            f" at {at}, flag BOOLEAN, raw BLOB) TIMESTAMP BY t"
        )
        stream = db.stream(name)
        stream.append(border_events(rng, stream.schema))


def over(name: str, statement: str, rng: random.Random) -> str:
    """A statement over ``s`` as one over a border stream, with some numbers at the ends."""
    text = re.sub(
        r"\b(FROM|JOIN) s\b(?! (?:o|AS|MATCH_RECOGNIZE)\b)", rf"\1 {name} AS s", statement
    )
    text = re.sub(r"\bs(?=,| o\b| MATCH_RECOGNIZE\b)", name, text)
    text = re.sub(r"\b(INTO|ON|DESCRIBE) s\b", rf"\1 {name}", text)
    if units := UNITS.get(name):

        def span(number: re.Match[str]) -> str:
            size = rng.choice([number[2], "106751", "292000"])
            return f"{number[1]}INTERVAL '{size}' {rng.choice(units)}"

        text = re.sub(r"(\b(?:TUMBLE|HOP|SESSION)\(\w+, t, )(\d+)", span, text)
        text = re.sub(r"(\bHOP\(\w+, t, INTERVAL '\d+' \w+, )(\d+)", span, text)
        return re.sub(r"(\bWITHIN )(\d+)", span, text)

    def number(found: re.Match[str]) -> str:
        return rng.choice(NUMBERS) if rng.random() < 0.3 else found[0]

    return re.sub(r"(?<![\w'.])\d+(?![\w'.])", number, text)
