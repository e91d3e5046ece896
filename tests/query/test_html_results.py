"""Results in notebooks, and types for those who check theirs."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pyarrow as pa

from chronicle.query.contract.result import Result, result_of

ROOT = Path(__file__).parents[2]


def test_a_notebook_shows_the_first_rows_and_takes_none() -> None:
    batches = [pa.record_batch({"n": list(range(k, k + 15))}) for k in range(0, 60, 15)]
    result = Result(batches[0].schema, iter(batches))
    shown = result._repr_html_()
    assert shown.count("<tr>") == 21
    assert "there are more" in shown
    assert result._repr_html_() == shown
    assert result.arrow().num_rows == 60
    assert result._repr_html_() == shown
    few = Result(batches[0].schema, iter(batches[:1]))
    assert "15 rows" in few._repr_html_()
    assert sum(batch.num_rows for batch in few.batches()) == 15
    assert "were taken" in few._repr_html_()
    assert "0 rows" in Result(batches[0].schema, iter(()))._repr_html_()


def test_values_stay_texts() -> None:
    hostile = "<img src=x onerror=alert(1)>"
    rows = pa.table({hostile: [hostile, None], "t": pa.array([2**62, None], pa.timestamp("ns"))})
    shown = result_of(rows)._repr_html_()
    assert "<img" not in shown
    assert shown.count("<i>null</i>") == 2
    assert "2116-" in shown
    assert "..." in result_of(pa.table({"x": ["y" * 500]}))._repr_html_()


def test_the_package_says_that_it_is_typed() -> None:
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert (ROOT / "py.typed").exists()
    assert "py.typed" in setup["tool"]["setuptools"]["package-data"]["chronicle"]
