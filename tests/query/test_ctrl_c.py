"""Ctrl-C: it ends the query that runs, whatever that is doing, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CTRL_C = """
import os, random, signal, sys, threading
import chronicle, pyarrow as pa
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run in the background
db = chronicle.open(sys.argv[1])
db.create_stream("s", pa.schema([("t", pa.int64())]), "t").append(
    pa.table({"t": list(range(200_000))}))
texts = (
    "SELECT sum(a.t * b.t % 7) FROM s a, s b WHERE a.t < {n} AND b.t < 100",
    "SELECT count(*) FROM s WHERE t >= 0 AND t % 1 = {n}",
    "SELECT count(*) FROM s MATCH_RECOGNIZE (ORDER BY t PATTERN (A B) DEFINE A AS t % 7 = {n},"
    " B AS t % 5 = 1)",
)
for text in texts:
    db.sql(text.format(n=3)).fetchall()
chance, told, n = random.Random(1), 0, 0
while told < 100:
    n += 1
    timer = threading.Timer(chance.random() * 0.02, os.kill, (os.getpid(), signal.SIGINT))
    try:
        try:
            timer.start()
            db.sql(chance.choice(texts).format(n=n)).fetchall()
        finally:
            timer.join()
    except KeyboardInterrupt:
        told += 1
print(told, db.sql("SELECT count(*) FROM s WHERE t >= 0 AND t % 1 = 0").fetchall())
"""


def test_ctrl_c_ends_a_query_and_nothing_else(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys, threading\n"
        "import chronicle, pyarrow as pa\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "db = chronicle.open(sys.argv[1])\n"
        "s = db.create_stream('s', pa.schema([('t', pa.int64())]), 't')\n"
        "s.append(pa.table({'t': list(range(200_000))}))\n"
        "db.sql('SELECT count(*) FROM s WHERE t % 1 = 0').fetchall()  # what is imported is\n"
        "rows = ', '.join(f'range(1000000) {name}' for name in 'abc')\n"
        "try:\n"
        "    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
        "    db.sql(f'SELECT count(*) FROM {rows} WHERE a.range < b.range').fetchall()\n"
        "    print('finished')\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
        "print(db.sql('SELECT count(*) FROM s WHERE t >= 0 AND t % 1 = 0').fetchall())\n"
        "db.close()\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["interrupted", "[(200000,)]"], done.stderr


def test_ctrl_c_at_any_moment_is_nothing_but_ctrl_c(tmp_path: Path) -> None:
    """Whatever runs then: the parser, DuckDB asking for a schema, a thread about to begin."""
    script = tmp_path / "script.py"
    script.write_text(CTRL_C)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "store")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["100 [(200000,)]"], done.stderr
