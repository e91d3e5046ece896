"""What reading and planning a statement costs at 1,000, 10,000 and 100,000 words, by family.

``python tests/query/statement_costs.py [FAMILY ...]`` prints the costs; docs/security.md has a few:
processor seconds of the thread until the statement could begin, and by how many megabytes memory
grew meanwhile at most.  Nothing is run.  A statement that is refused says so with its error.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import chronicle
from chronicle.api.database import catalog_of
from chronicle.query.sql import nesting

sys.path.insert(0, str(Path(__file__).parent))
from test_plan_limits import FAMILIES, refusal

SIZES = (1_000, 10_000, 100_000)
LIMIT_S = 120.0


def statement(make: Callable[[int], str], words: int) -> str:
    """The longest statement of a family with at most so many words."""
    asked = words
    for _ in range(4):
        text = make(asked)
        found = sum(1 for _ in nesting._TOKEN.finditer(text))
        if found <= words:
            return text
        asked = asked * words // found - 2
    return text


def memory(name: str) -> int:
    """Bytes of this process by a name of /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    raise KeyError(name)


def measured(database: chronicle.Database, text: str) -> str:
    """One cell of the table."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    begun = time.thread_time()
    error = refusal(database, text, timeout=LIMIT_S)
    seconds = time.thread_time() - begun
    grown = max(0, memory("VmHWM") - before) >> 20
    refused = "" if error is None else f", refused: {str(error).splitlines()[0][:60]}"
    return f"{seconds:.2f} s, {grown} MB{refused}"


def main(families: list[str]) -> None:
    """Print a line for each family as it is done."""
    print("| family |" + "".join(f" {size:,} |" for size in SIZES))
    print("|---|" + "---:|" * len(SIZES))
    with tempfile.TemporaryDirectory() as scratch, chronicle.open(scratch) as database:
        database.sql(
            "CREATE STREAM s (t BIGINT, k VARCHAR, x DOUBLE, at TIMESTAMP, flag BOOLEAN)"
            " TIMESTAMP BY t"
        )
        for warm in FAMILIES.values():
            refusal(database, warm(60))
        for name in families or FAMILIES:
            cells = [measured(database, statement(FAMILIES[name], size)) for size in SIZES]
            catalog_of(database).engine._prepared.__init__()  # type: ignore[misc]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
