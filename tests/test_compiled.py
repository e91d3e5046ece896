"""Kernels: what loads the compiler, what is compiled how often, a cache that processes share."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numba
import pytest

from chronicle import compiled, machine_code

from .patience import PATIENCE_S


def test_one_process_at_a_time_looks_into_the_cache() -> None:
    asked = threading.Event()
    found = []
    look = machine_code._in_turn(lambda cache, key: found.append(key))

    def ask() -> None:
        asked.set()
        look(None, "key")

    other = threading.Thread(target=ask)
    lock = os.open(machine_code.cache_directory() / "lock", os.O_RDONLY | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other.start()
        assert asked.wait(PATIENCE_S)
        other.join(0.2)
        assert not found
    finally:
        os.close(lock)
    other.join(PATIENCE_S)
    assert found == ["key"]


def test_what_cannot_be_written_is_read_without_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    look = machine_code._in_turn(lambda cache, key: key)
    monkeypatch.setenv("CHRONICLE_CACHE_DIR", "/dev/null/nowhere")
    assert look(None, "key") == "key"


def test_a_cache_that_can_only_be_read_is_read(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(
        "from chronicle.compiled import kernel\n@kernel\ndef next_one(x):\n    return x + 1\n"
    )
    cache = tmp_path / "cache"
    refuse = (
        "import tempfile\n"
        "def nowhere(*_, **__): raise PermissionError(13, 'read-only')\n"
        "tempfile.TemporaryFile = nowhere\n"
    )
    before: dict[Path, int] = {}
    for begin, asked, hits in (("", "1", 0), (refuse, "1", 1), (refuse, "1.5", 0)):
        program = (
            f"{begin}from chronicle import machine_code\nimport kernels\n"
            f"kernels.next_one({asked})\n"
            "print(machine_code.keeps_machine_code, len(kernels.next_one.form.stats.cache_hits))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "CHRONICLE_CACHE_DIR": str(cache)},
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout.split() == [str(not begin), str(hits)], done.stderr
        written = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
        assert not begin or written == before
        before = written


def test_compiling_ends_in_the_thread_that_does_not_want_it() -> None:
    @numba.njit
    def one(x):  # type: ignore[no-untyped-def]
        return x

    with machine_code.compiling_while(lambda: False):
        with pytest.raises(machine_code.CompilingStopped):
            one(1)
        other = threading.Thread(target=one, args=(1,))
        other.start()
        other.join(PATIENCE_S)
        assert one(1) == 1
    assert one(1.5) == 1.5


NO_COMPILER = """
import sys, pyarrow as pa, chronicle
with chronicle.open(sys.argv[1]) as database:
    for sql in (
        "SELECT 1", "SELECT 1 + 1 AS two", "CREATE STREAM s (t BIGINT, x DOUBLE) TIMESTAMP BY t",
        "SHOW STREAMS", "DESCRIBE s", "EXPLAIN SELECT x FROM s", "SELECT * FROM s",
        "SELECT sum(x) FROM s",
    ):
        database.sql(sql).arrow()
print("numba" in sys.modules)
"""


def test_statements_without_events_load_no_compiler(tmp_path: Path) -> None:
    """Half a second, more than all the rest that opening a store loads."""
    done = subprocess.run(
        [sys.executable, "-c", NO_COMPILER, str(tmp_path / "store")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "False\n", done.stderr


def test_a_statement_without_streams_loads_little(tmp_path: Path) -> None:
    """A quarter of what `chronicle sql 'select 1'` took was pandas, a third what it never names."""
    program = (
        "import sys, chronicle, chronicle.cli\n"
        "chronicle.open(sys.argv[1]).close()\n"
        "assert chronicle.cli.run(['sql', '--store', sys.argv[1], 'SELECT 1 AS one']) == 0\n"
        "dear = {'numba', 'pandas', 'pyarrow.dataset', 'chronicle.server', 'rich'}\n"
        "rooms = ('commands.ingest', 'commands.live', 'query.pattern.matcher', 'query.replay', "
        "'query.situations', 'query.split', 'query.windows', 'query.recent', 'query.statements')\n"
        "dear |= {f'chronicle.{room}' for room in rooms}\n"
        "print(sorted(dear & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "store")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr + done.stdout


def test_the_server_and_the_command_line_are_loaded_without_the_compiler() -> None:
    program = (
        "import sys, chronicle.cli, chronicle.database, chronicle.query.engine, chronicle.live, "
        "chronicle.indexes, chronicle.server.app, chronicle.server.run\n"
        "print(sorted({'numba', 'pyspark'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr


FIRST_QUESTIONS = """
import gc, sys, pyarrow as pa, chronicle
from chronicle.compiled import Kernel
SPAN = "INTERVAL '1' HOUR"
ROWS = 40_000
with chronicle.open(sys.argv[1]) as database:
    database.sql("CREATE STREAM s (t TIMESTAMP, k VARCHAR, x DOUBLE, i BIGINT) TIMESTAMP BY t")
    times = pa.array(range(0, ROWS * 10**6, 10**6), pa.timestamp("us"))
    i = pa.array(range(ROWS))
    k = pa.array([f"k{n % 3}" for n in range(ROWS)])
    database.stream("s").append(pa.table({"t": times, "k": k, "x": i.cast("double"), "i": i}))
    for sql in (
        "SELECT sum(x), count(*), max(i) FROM s",
        "SELECT sum(x) FROM s WHERE t >= TIMESTAMP '1970-01-01 01:00:00'",
        "SELECT * FROM s WHERE x > 39000",
        f"SELECT window_start, avg(x), count(k) FROM TUMBLE(s, t, {SPAN}) GROUP BY window_start",
        f"SELECT avg(x) FROM HOP(s, t, {SPAN}, INTERVAL '2' HOUR) GROUP BY window_start",
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.x AS a PATTERN (A B+) "
        "WITHIN INTERVAL '1' MINUTE DEFINE A AS i % 70 = 3, B AS x > PREV(x)) AS m",
    ):
        database.sql(sql).arrow()
    for found in gc.get_objects():
        if isinstance(found, Kernel) and found._form is not None:
            for kinds in found._form.overloads:
                print(found.__name__, *kinds, sep=" | ")
"""


def test_first_questions_compile_each_kernel_for_one_kind_of_arguments(tmp_path: Path) -> None:
    """What differs in nothing but whether an array can be written is compiled twice: seconds."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_QUESTIONS, str(tmp_path / "store")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    kernels = Counter(line.partition(" | ")[0] for line in lines)
    assert kernels["merge_children"], done.stdout
    assert kernels["sweep_leaves"]
    again = [line for line in lines if kernels[line.partition(" | ")[0]] > 1]
    assert not again, "\n".join(again)


def test_a_literal_in_a_call_is_no_kind_of_its_own() -> None:
    @compiled.kernel
    def power(base: int, exponent: int) -> int:
        return base**exponent

    @compiled.kernel
    def powers(base: int) -> int:
        return power(base, 2) + power(base, 3) + power(2, base)

    assert powers(3) == 9 + 27 + 8
    assert len(power.form.overloads) == 1
