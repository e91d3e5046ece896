"""Machine code that another process makes: described, looked for, waited for, made but once."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle import compiled
from chronicle.compiled import kernel
from chronicle.compiled_beside import _example, _is_kept, kind_of

from .patience import wait_until


@pytest.mark.parametrize(
    "value",
    [
        *(1, True, 1.5, np.int32(1), np.uint64(1), np.bool_(True), np.float32(1.5)),
        *(np.arange(3), np.zeros((2, 3), np.float32), np.zeros((3, 2), order="F")),
        *(np.arange(10)[::3], np.zeros((4, 6))[::2, ::3], np.frombuffer(b"12345678", np.int64)),
        np.zeros(17, np.uint8)[1:].view(np.int64),
        (1, 2.0, np.arange(3)),
        kernel,
        2**70,
    ],
)
def test_arguments_are_described_by_what_they_are_compiled_for(value: Any) -> None:
    from numba import typeof

    kind = kind_of(value)
    if kind is None:
        assert value is kernel or value == 2**70
    else:
        assert typeof(_example(kind)) == typeof(value)


FIRST = """
import sys, chronicle
from chronicle import interpreted
interpreted.SECONDS_MAX = 300
with chronicle.open(sys.argv[1], "r") as database:
    print(database.sql("SELECT sum(x), max(i) FROM s WHERE t > 700").fetchall())
print("numba" in sys.modules)
"""


def run(*program: str, cwd: Path, **environment: str) -> list[str]:
    """The lines that a program prints which may compile beside; it may say nothing else."""
    given = {**os.environ, **environment}
    given.pop("CHRONICLE_COMPILE", None)
    done = subprocess.run(
        [sys.executable, "-W", "error", *program],
        env=given, cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_first_query_loads_no_compiler(tmp_path: Path) -> None:
    """Nothing is compiled beside, as nothing could be kept."""
    with chronicle.open(tmp_path / "s") as database:
        numbers = np.arange(3_000)
        table = pa.table({"t": numbers, "x": numbers * 0.1, "i": numbers % 7})
        stream = database.create_stream("s", table.schema, "t", options={"leaf_bytes": 1 << 13})
        stream.append(table)
        stream.seal()
        answer = database.sql("SELECT sum(x), max(i) FROM s WHERE t > 700").fetchall()
    found = run("-c", FIRST, "s", cwd=tmp_path, CHRONICLE_CACHE_DIR="/dev/null/nowhere")
    assert found == [str(answer), "False"]


def test_the_next_process_finds_machine_code(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(
        "from chronicle.compiled import interpretable, kernel\n"
        "@interpretable()\n@kernel\ndef last(x):\n    return x[x.size - 1]\n"
    )
    asked = (
        "import sys, kernels, numpy as np\n"
        "print(kernels.last(np.arange(5)), 'numba' in sys.modules)"
    )
    cache = tmp_path / "cache"
    ask = partial(run, "-c", asked, cwd=tmp_path, CHRONICLE_CACHE_DIR=str(cache))
    assert ask() == ["4 False"]

    def kept() -> bool:
        found = ask()
        assert found in (["4 False"], ["4 True"])
        return found == ["4 True"]

    wait_until(kept, "machine code")
    with open(cache / "compiling", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # whoever compiles ends with its work
    assert len(list(cache.rglob("*.nbc"))) == 1


def test_machine_code_is_looked_for_where_numba_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(
        "from chronicle.compiled import interpretable, kernel\n"
        "from chronicle.compiled_beside import _is_kept\n"
        "@interpretable()\n@kernel\ndef double(x):\n    return 2 * x\n"
        "print(_is_kept(double.function))\ndouble(1)\nprint(_is_kept(double.function))\n"
    )
    done = subprocess.run(
        [sys.executable, "kernels.py"],
        env={**os.environ, "CHRONICLE_CACHE_DIR": str(tmp_path / "cache")},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["False", "True"], done.stderr[-2000:]
    assert not _is_kept(compiled.kernel)


LEFT = """
import os, subprocess, sys, time
import numpy as np
import kernels
from chronicle import compiled_beside, interpreted
from chronicle.tests.patience import wait_until

def machine_code(each):
    return each._has_run is not None

def last_is_compiled():
    assert kernels.last(five) == 4
    return machine_code(kernels.last)

compiled_beside.LOOK_AGAIN_S = 0.1
interpreted.leave_compiling()
five = np.arange(5)
assert (kernels.first(five), kernels.last(five)) == (0, 4)
beside = interpreted._beside
assert beside._process is None and "numba" not in sys.modules
first = {**os.environ, "CHRONICLE_COMPILE": "first"}
other = "import kernels, numpy as np\\nkernels.first(np.arange(5))"
subprocess.run([sys.executable, "-c", other], env=first, check=True)
time.sleep(compiled_beside.LOOK_AGAIN_S + 0.1)
assert kernels.first(five) == 0 and machine_code(kernels.first)
assert kernels.last(five) == 4 and not machine_code(kernels.last) and beside._process is None
interpreted.compile_beside()
assert len(beside._asked) == 1 and beside._process is not None
wait_until(last_is_compiled)
assert beside._process.poll() is None
print("done")
"""


def test_what_somebody_else_compiles_is_not_compiled_beside(tmp_path: Path) -> None:
    """It runs as Python until the other one is done; what that left out is compiled then."""
    (tmp_path / "kernels.py").write_text(
        "from chronicle.compiled import interpretable, kernel\n"
        "@interpretable()\n@kernel\ndef first(x):\n    return x[0]\n"
        "@interpretable()\n@kernel\ndef last(x):\n    return x[x.size - 1]\n"
    )
    found = run("-c", LEFT, cwd=tmp_path, CHRONICLE_CACHE_DIR=str(tmp_path / "cache"))
    assert found == ["done"]


def test_machine_code_of_another_source_does_not_count(tmp_path: Path) -> None:
    """After an upgrade small inputs run as Python, too, until somebody has looked."""
    (tmp_path / "kernels.py").write_text(
        "import os, sys\n"
        "from chronicle.compiled import interpretable, kernel\n"
        "from chronicle.compiled_beside import _is_kept, _keep\n"
        "@interpretable()\n@kernel\ndef double(x):\n    return 2 * x\n"
        "double(1)\nprint(_is_kept(double.function))\n"
        "later = os.stat(__file__).st_mtime + 3600\n"
        "os.utime(__file__, (later, later))\nprint(_is_kept(double.function))\n"
        "os.utime(__file__)\n_keep(double.function)\nprint(_is_kept(double.function))\n"
    )
    environment = {"CHRONICLE_COMPILE": "first", "CHRONICLE_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "kernels.py"], env={**os.environ, **environment},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["True", "False", "True"], done.stderr[-2000:]
