"""Arrays that a query frees are there for the next one, without a page fault."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from chronicle.store.store import Store

if sys.argv[1] == "open":
    Store.open(sys.argv[2], "rw")

def arrays():
    return [np.ones(1 << 18) for _ in range(8)]  # 2 MiB each

arrays()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    arrays()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*arguments: object) -> int:
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the heap of glibc")
def test_a_store_keeps_freed_arrays_for_its_queries(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    store = tmp_path_factory.mktemp("heap") / "store"
    assert 10 * faults("open", store) < faults("without", store)
