"""Ctrl-C: it ends the query that runs, whatever that is doing, and nothing else."""

from __future__ import annotations

import dis
import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from chronicle.core.ownership import Condition, ModuleLock, OwnedLock
from chronicle.query.contract.cancellation import alone

BEGIN = """
import os, random, signal, sys, threading
import chronicle, pyarrow as pa
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run in the background
db = chronicle.open(sys.argv[1])
db.create_stream("s", pa.schema([("t", pa.int64())]), "t").append(
    pa.table({"t": list(range(200_000))}))
def counted(n=0):
    return db.sql(f"SELECT count(*) FROM s WHERE t >= 0 AND t % 1 = {n}").fetchall()
counted()  # what is imported is
"""
CTRL_C = """
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
print(told, counted())
"""


ONE = """
rows = ", ".join(f"range(1000000) {name}" for name in "abc")
try:
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    db.sql(f"SELECT count(*) FROM {rows} WHERE a.range < b.range").fetchall()
except KeyboardInterrupt:
    print("interrupted", counted())
db.close()
"""


@pytest.mark.parametrize(
    ("program", "said"),
    [
        pytest.param(ONE, "interrupted [(200000,)]", id="a query without an end"),
        # the parser runs then, DuckDB that asks for a schema, a thread about to begin
        pytest.param(CTRL_C, "100 [(200000,)]", id="at any moment"),
    ],
)
def test_ctrl_c_ends_a_query_and_nothing_else(tmp_path: Path, program: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program, str(tmp_path / "store")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [said], done.stderr


def ctrl_c(moment: int, lock: AbstractContextManager[object]) -> bool:
    """Enter and leave; of the moments in between in which Python looks for signals, one has one."""
    moments = itertools.count()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is ctrl_c.__code__:
            return None
        frame.f_trace_opcodes = True
        steps = [i.opname for i in dis.get_instructions(frame.f_code) if i.offset < frame.f_lasti]
        looks = event == "call" or (event == "opcode" and steps[-1:] == ["CALL"])
        if looks and next(moments) == moment:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with lock:
            pass
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize(
    "lock",
    [OwnedLock("a"), ModuleLock(), Condition(), alone()],
    ids=lambda lock: type(lock).__name__,
)
def test_ctrl_c_leaves_no_lock_held(lock: Any) -> None:
    with ThreadPoolExecutor(1) as other:
        for moment in range(1000):
            came = ctrl_c(moment, lock)
            assert other.submit(lock.acquire, blocking=False).result(), moment
            other.submit(lock.release).result()
            if not came:
                break
