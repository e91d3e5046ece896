"""docs/spark.md is true: its option table is the code's, its examples run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from chronicle.api.database import open_database
from chronicle.spark_connector.options import OPTIONS

from .conftest import load

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
USES = {"r": "read", "s": "readStream", "w": "write", "x": "writeStream"}


def test_the_option_table_is_the_one_of_the_code() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.split("<!-- options: begin -->")[1].split("<!-- options: end -->")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{option.name}` | {', '.join(USES[use] for use in option.uses)} "
        f"| {option.default or '–'} | {option.meaning} |"
        for option in OPTIONS
    ]


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_the_examples_run(spark: Any, flights: Path, tmp_path: Path) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    shutil.copytree(flights, tmp_path / "store")
    source = tmp_path / "events.csv"
    source.write_text("when,sensor,value\n2024-01-01,a,1\n2024-01-02,a,-60\nnever,a,1\n")
    names: dict[str, Any] = {
        "day": load(spark, flights),
        "store": str(tmp_path / "store"),
        "target": str(tmp_path / "copy"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "source": str(source),
        "spark": spark,
    }
    ran = 0
    for example in examples:
        exec(compile(example, str(DOCUMENT), "exec"), names)
        ran += 1
    names["query"].awaitTermination(60)
    assert ran == 8
    assert names["query"].exception() is None
    assert (names["report"].stored, names["report"].bad, names["report"].filtered) == (1, 1, 1)
    with open_database(tmp_path / "store", "r") as database:
        written = database.stream("flights").count
    with open_database(tmp_path / "copy", "r") as database:
        assert database.stream("copy").count == written
