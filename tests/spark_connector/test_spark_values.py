"""The table of docs/values.md through Spark: every type read, and written back, in one session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import chronicle

from ..server.test_values import KINDS, scalar_of, text_of, wanted_of
from .conftest import load


def test_values_pass_spark(spark: Any, tmp_path: Path) -> None:
    path, problems = tmp_path / "store", []
    streams = {name: f"s{number}" for number, name in enumerate(KINDS)}
    with chronicle.open(path) as db:
        for name, stream in streams.items():
            kind = KINDS[name]
            for made in (stream, f"{stream}_back"):
                db.sql(f"CREATE STREAM {made} (t BIGINT, x {name}) TIMESTAMP BY t")
            column = pa.array([scalar_of(kind, text) for text in kind.holds], kind.type)
            db.stream(stream).append(pa.table({"t": range(len(column)), "x": column}))
    for name, stream in streams.items():
        kind = KINDS[name]
        try:
            frame = load(spark, path, stream)
            shown = "unix_micros(x) AS x" if name == "TIMESTAMPTZ" else "x"  # not Python's clock
            rows = frame.orderBy("t").selectExpr(shown).collect()
            found = [text_of(kind, row.x) for row in rows]
            if found != wanted_of(kind):
                problems.append((name, "read", found))
            back = frame.write.format("chronicle").mode("append")
            back.options(path=str(path), stream=f"{stream}_back").save()
        except Exception as error:
            if name == "TIMESTAMP_NS" and "microseconds" in str(error):
                continue  # times of Spark hold no finer ones
            problems.append((name, "failed", str(error)[:300]))
            continue
        with chronicle.open(path, mode="r") as db:
            table = db.sql(f"SELECT x FROM {stream}_back ORDER BY t").arrow()
        if [text_of(kind, x) for x in table["x"]] != wanted_of(kind):
            problems.append((name, "written", table["x"].to_pylist()))
    assert not problems, "\n".join(map(str, problems))
