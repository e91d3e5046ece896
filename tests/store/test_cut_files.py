"""Files that something else shortens: an error, not the end of the process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
    import os, sys
    import pyarrow as pa
    import chronicle
    from chronicle.errors import CorruptStore

    db = chronicle.open(sys.argv[1], mode=sys.argv[2])
    print("opened", flush=True)
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
    for path in sys.argv[4:]:
        os.truncate(path, os.path.getsize(path) * int(sys.argv[3]) // 100)
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
    print("lived")
"""


@pytest.mark.parametrize("mode", ["rw", "r"])
@pytest.mark.parametrize("percent", [0, 5, 60, 99])
def test_a_segment_that_shrinks_under_its_mapping(tmp_path: Path, mode: str, percent: int) -> None:
    import pyarrow as pa

    import chronicle

    rows = 30_000
    with chronicle.open(tmp_path / "store") as db:
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
    segments = [str(path) for path in tmp_path.rglob("*.seg")]
    assert len(segments) == 2
    arguments = [str(tmp_path / "store"), mode, str(percent), *segments]
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
    assert "lived" in ran.stdout
