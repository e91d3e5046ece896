"""``chronicle tail`` of a store: by a scan what SQL gives."""

from __future__ import annotations

import datetime as dt
import decimal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import chronicle

from .conftest import Run

FORMATS = ("table", "ndjson", "csv")


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """A store with a stream of many types, the last of which lies in several late runs."""
    rows = 500
    times = [dt.datetime(2026, 1, 1) + dt.timedelta(minutes=i * 337 % 503) for i in range(rows)]
    columns = {
        "at": pa.array(times, pa.timestamp("ms", "UTC")),
        "money": pa.array([decimal.Decimal(i) / 4 for i in range(rows)], pa.decimal128(12, 2)),
        "day": pa.array([86_400_000 * i for i in range(rows)], pa.date64()),
        "said": pa.array([f'{{"n": {i}}}' for i in range(rows)]).cast(pa.string()),
        "part": pa.array([None if i % 3 else i / 7 for i in range(rows)], pa.float32()),
        "raw": pa.array([bytes([i % 256]) for i in range(rows)]),
        "tags": pa.array([[str(i)] * (i % 3) for i in range(rows)], pa.list_(pa.string())),
        "big": pa.array([2**63 + i for i in range(rows)], pa.uint64()),
    }
    table = pa.table(columns)
    said = pa.ExtensionArray.from_storage(pa.json_(), table["said"].combine_chunks())
    table = table.set_column(table.column_names.index("said"), "said", said)
    with chronicle.open(tmp_path / "st") as database:
        stream = database.create_stream("s", table.schema, "at", options={"leaf_bytes": 1 << 12})
        for begin in range(0, rows, 50):
            stream.append(table.slice(begin, 50))
    return tmp_path / "st"


@pytest.mark.parametrize("format", FORMATS)
def test_the_latest_events_are_those_of_sql(run: Run, typed: Path, format: str) -> None:
    for lines in ("0", "1", "10", "499", "1000"):
        given = ("tail", "s", "-f", format, "-n", lines)
        found, expected = run(*given), run(*given, "--where", "TRUE")
        assert found.code == expected.code == 0
        head = int(format == "csv") + 2 * int(format == "table")
        assert len(found.out.splitlines()) == min(int(lines), 500) + head
        assert found.out == expected.out


def test_columns_come_in_the_order_asked_for(run: Run, typed: Path) -> None:
    assert run("tail", "s", "-f", "csv", "--columns", "big, AT", "-n", "1").out == (
        "big,at\n9223372036854775908,2026-01-01 08:22:00Z\n"
    )
    missing = run("tail", "s", "--columns", "biig")
    assert missing.code == 1
    assert "biig" in missing.err


def test_no_query_engine_is_loaded(run: Run, typed: Path) -> None:
    asked = (
        "import atexit, sys; from chronicle.cli import main\n"
        "names = ('duckdb', 'sqlglot', 'pyarrow.dataset', 'chronicle.query.engine')\n"
        "told = lambda: print([n for n in names if n in sys.modules], file=sys.stderr)\n"
        "atexit.register(told); main()"
    )
    for arguments in (("streams",), ("describe", "s"), ("tail", "s")):
        done = subprocess.run(
            [sys.executable, "-c", asked, *arguments], capture_output=True, text=True, check=True
        )
        assert done.stderr == "[]\n", arguments
