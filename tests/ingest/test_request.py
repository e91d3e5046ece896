"""Which sources inputs stand for, and requests that make no sense."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import ConnectionFailed, InvalidArgument, MissingDependency
from chronicle.ingest import IngestRequest, Target, choose_engine, expand, ingest
from chronicle.ingest import pipeline as engines_module


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def names(root: Path, *inputs: str) -> list[str]:
    return [os.path.relpath(s.path, root) for s in expand([str(root / item) for item in inputs])]


def test_files_directories_and_globs(tmp_path: Path) -> None:
    touch(tmp_path, "b.csv", "a.csv.gz", "d/c.json", "d/e/f.parquet", "d/.hidden.csv", "d/_SUCCESS")
    touch(tmp_path, "d/notes.md", "d/_tmp/x.csv")
    assert names(tmp_path, "b.csv", "a.csv.gz") == ["b.csv", "a.csv.gz"]
    assert names(tmp_path, "*.csv*") == ["a.csv.gz", "b.csv"]
    assert names(tmp_path, "d") == ["d/c.json", "d/e/f.parquet"]
    assert names(tmp_path, "**/*.json", "d") == ["d/c.json", "d/e/f.parquet"]  # each file once
    assert names(tmp_path, "d/notes.md") == ["d/notes.md"]  # named: taken whatever its suffix
    assert expand(["-"])[0].size is None
    assert expand([str(tmp_path / "b.csv")])[0].size == 1


def test_a_file_may_be_called_like_a_pattern(tmp_path: Path) -> None:
    touch(tmp_path, "a[1].csv")
    assert names(tmp_path, "a[1].csv") == ["a[1].csv"]


def test_nothing_to_read(tmp_path: Path) -> None:
    touch(tmp_path, "d/readme.md")
    for item, message in (
        ("gone.csv", "there is no file"),
        ("*.csv", "no file matches"),
        ("d", "has no file with a known suffix"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            expand([str(tmp_path / item)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": []}, "at least one file"),
        ({"engine": "flink"}, "--engine is one of auto, arrow, spark"),
        ({"on_error": "ignore"}, "--bad-rows is one of fail, skip, quarantine"),
        ({"commit": "never"}, "--commit is one of end, batch"),
        ({"format": "xml"}, "--format is one of json, ndjson"),
        ({"batch_rows": 0}, "--batch-size is at least 1"),
        ({"quarantine": Path("q")}, "needs --bad-rows quarantine"),
        ({"engine": "arrow", "master": "local[2]"}, "--master is for --engine spark"),
        ({"retention": "30 days"}, "add --create"),
    ],
)
def test_requests_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        IngestRequest(**{"inputs": ["-"], "stream": "s", **options})


def test_engines() -> None:
    assert choose_engine(IngestRequest(["-"], "s")) == "arrow"
    assert choose_engine(IngestRequest(["-"], "s", master="local[2]")) == "spark"
    assert choose_engine(IngestRequest(["-"], "s", engine="spark")) == "spark"


def test_spark_without_pyspark_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines_module.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingDependency, match=r"chronicle-eventstore\[spark\]"):
        ingest(IngestRequest(["-"], "s", engine="spark"), Target(path=tmp_path / "st"))


def test_targets() -> None:
    with pytest.raises(InvalidArgument, match="one target"):
        Target()
    with pytest.raises(InvalidArgument, match="one target"):
        Target(path="a", url="http://b")
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        ingest(IngestRequest(["-"], "s"), Target(url="http://127.0.0.1:1", retries=0))
    with pytest.raises(InvalidArgument, match="http://host:port"):
        ingest(IngestRequest(["-"], "s"), Target(url="127.0.0.1:1"))
