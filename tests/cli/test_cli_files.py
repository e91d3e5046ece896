"""``chronicle sql --with``: files beside streams."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from .conftest import Run

NAMES = "name,place\npump 0,cellar\npump 1,roof\n"
TABLE = pa.table({"name": ["pump 0", "pump 1"], "place": ["cellar", "roof"]})
JSON = "\n".join(str(row).replace("'", '"') for row in TABLE.to_pylist())
JOIN = "SELECT place, sum(x) AS x FROM sensors JOIN places USING (name) GROUP BY 1 ORDER BY 1"


def put(path: Path) -> None:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(NAMES.encode()))
    elif path.suffix == ".parquet":
        pq.write_table(TABLE, path)
    elif path.suffix == ".arrow":
        feather.write_feather(TABLE, path, compression="uncompressed")
    else:
        path.write_text(NAMES if path.suffix == ".csv" else JSON)


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "json", "ndjson", "parquet", "arrow"])
def test_files_join_with_streams(run: Run, sensors: Path, tmp_path: Path, suffix: str) -> None:
    put(tmp_path / f"places.{suffix}")
    for named in (f"places.{suffix}", f"PLACES=places.{suffix}"):
        outcome = run("sql", "-f", "csv", "--with", named, JOIN)
        assert (outcome.code, outcome.out) == (0, "place,x\ncellar,15.0\nroof,12.5\n"), outcome.err


def test_files_stay_while_a_script_writes(run: Run, sensors: Path, tmp_path: Path) -> None:
    put(tmp_path / "p.csv")
    script = (
        "SELECT count(*) AS n FROM p; "
        "INSERT INTO sensors SELECT TIMESTAMP '2021-01-01' AS t, 1.0 AS x, name FROM p; "
        "SELECT count(*) AS n FROM sensors JOIN p USING (name)"
    )
    outcome = run("sql", "-f", "csv", "--with", "p.csv", script)
    assert (outcome.code, outcome.out) == (0, "n\n2\ncount\n2\nn\n12\n"), outcome.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--with", "places=none.csv"], "there is no file 'none.csv'"),
        (["--with", "places=list.xyz"], "reads .csv"),
        (["--with", "=list.csv"], "takes name=file"),
        (["--with", "a=list.csv", "--with", "A=list.csv"], "twice"),
        (["--with", "sensors=list.csv"], "there is a stream or view 'sensors'"),
        (["--with", "p=wrong.parquet"], "wrong.parquet"),
        (["--with", "p=wrong.json"], "wrong.json"),
        (["--url", "http://127.0.0.1:9", "--with", "list.csv"], "a server reads no files"),
    ],
)
def test_what_cannot_be_read_is_said(
    run: Run, sensors: Path, tmp_path: Path, options: list[str], said: str
) -> None:
    put(tmp_path / "list.csv")
    for name in ("wrong.parquet", "wrong.json"):
        (tmp_path / name).write_text("{[")
    outcome = run("sql", *options, "SELECT 1")
    assert outcome.code in (1, 2)
    assert said in outcome.err


def test_sql_names_no_file_that_was_not_given(run: Run, sensors: Path, tmp_path: Path) -> None:
    put(tmp_path / "places.csv")
    for source in ("'places.csv'", "read_csv('places.csv')", '"places.csv"', "places"):
        outcome = run("sql", "--with", "other=places.csv", f"SELECT * FROM {source}")
        assert outcome.code == 1, source
        assert "cellar" not in outcome.out + outcome.err
