"""Files that something else shortens: an error, not the end of the process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import chronicle
from chronicle.tests.patience import PATIENCE_S

PERCENTS = (0, 5, 60, 99)
PROGRAM = """
import os, sys
from pathlib import Path
import chronicle
from chronicle.errors import CorruptStore

def cut(path, mode, percent):
    db = chronicle.open(path, mode=mode)
    stream = db.stream("s")
    asks = [
        lambda: stream.scan().read_all().num_rows,
        lambda: stream.aggregate({"x": "sum"}),
        lambda: stream.aggregate({"x": "sum"}, 100, 15_003),
        lambda: db.sql("SELECT sum(x), max(k) FROM s").fetchall(),
        lambda: db.sql("SELECT t FROM s WHERE k = 'k3' AND x > 7").fetchall(),
        lambda: db.sql("SELECT avg(x) FROM HOP(s, t, 100, 500)").fetchall(),
        lambda: db.sql("SELECT count(*) FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a "
                       "PATTERN (A B) DEFINE B AS x > PREV(x))").fetchall(),
    ]
    answers = [ask() for ask in asks]
    segments = list(Path(path).rglob("*.seg"))
    assert len(segments) == 2
    for segment in segments:
        os.truncate(segment, os.path.getsize(segment) * percent // 100)
    refused = 0
    for ask, before in zip(asks, answers):
        try:
            assert ask() == before, "another answer"
        except CorruptStore as error:
            assert "was cut" in str(error), error
            refused += 1
    assert refused >= 3, refused
    try:
        assert not db.check().ok
    finally:
        db.close()

mode, *stores = sys.argv[1:]
for path in stores:
    cut(path, mode, int(Path(path).name))
    print("lived", Path(path).name, flush=True)
"""


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_segment_that_shrinks_under_its_mapping(tmp_path: Path, mode: str) -> None:
    rows = 30_000
    with chronicle.open(tmp_path / "whole") as db:
        stream = db.create_stream(
            "s",
            pa.schema([("t", pa.int64()), ("x", pa.float64()), ("k", pa.string())]),
            time="t",
            codec="none",
            options={"leaf_bytes": 16_384},
        )
        table = pa.table(
            {
                "t": list(range(rows)),
                "x": [n * 0.25 for n in range(rows)],
                "k": [f"k{n % 7}" for n in range(rows)],
            }
        )
        stream.append(table.slice(0, 20_000))
        stream.seal()
        stream.append(table.slice(20_000))
    stores = [tmp_path / str(percent) for percent in PERCENTS]
    for store in stores:
        shutil.copytree(tmp_path / "whole", store)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, mode, *map(str, stores)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, (ran.returncode, ran.stdout, ran.stderr)
    assert ran.stdout.split() == [word for percent in PERCENTS for word in ("lived", str(percent))]
