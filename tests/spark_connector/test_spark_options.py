"""Options of the Spark format: names, kinds, contradictions; no Spark session needed."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path

import pytest

from chronicle.errors import InvalidArgument
from chronicle.spark_connector.options import OPTIONS, Options
from chronicle.spark_connector.session import _ours

BASE = {"path": "/data/store", "stream": "flights"}


def test_names_are_case_insensitive_and_values_typed() -> None:
    options = Options.parse(
        {**BASE, "NUMPARTITIONS": "4", "pushfilters": "True", "Columns": 'a, "b,c" ,`d`'}, "r"
    )
    assert options.num_partitions == 4
    assert options.push_filters is True
    assert options.columns == ("a", "b,c", "d")
    assert options.batch_size == 65_536


def test_every_option_of_the_table_is_a_field_and_parses() -> None:
    samples = {
        "text": "x", "names": "a,b", "time": "2018-08-01T00:00:00Z", "count": "2", "limit": "0",
        "flag": "false", "position": "latest", "number": "3", "seconds": "1.5",
    }  # fmt: skip
    for option in OPTIONS:
        if option.name in ("path", "url", "stream"):
            continue
        raw = {"path": "/s", option.name: samples[option.kind]}
        if option.name != "query":
            raw["stream"] = "s"
        use = option.uses[0]
        if option.name == "txnVersion":
            raw["txnAppId"] = "app"
        if option.name == "txnAppId":
            raw["txnVersion"] = "1"
        parsed = Options.parse(raw, use)
        assert parsed != Options(), option.name


@pytest.mark.parametrize(
    ("raw", "use", "message"),
    [
        ({**BASE, "numPartition": "4"}, "r", "did you mean 'numPartitions'"),
        ({**BASE, "starttime": "x", "filtr": "a > 1"}, "r", "did you mean 'filter'"),
        ({**BASE, "xyzzy": "1"}, "r", "known are"),
        ({**BASE, "truncate": "true"}, "r", "is for write, not for read"),
        ({**BASE, "limit": "3"}, "s", "is for read, not for readStream"),
        ({**BASE, "numPartitions": "0"}, "r", "at least 1"),
        ({**BASE, "numPartitions": "many"}, "r", "a whole number"),
        ({**BASE, "limit": "-1"}, "r", "at least 0"),
        ({**BASE, "pushFilters": "maybe"}, "r", "true or false"),
        ({**BASE, "timeout": "0"}, "r", "above 0"),
        ({**BASE, "timeout": "nan"}, "r", "above 0"),
        ({**BASE, "columns": " "}, "r", "separated by commas"),
        ({**BASE, "columns": "a,,b"}, "r", "separated by commas"),
        ({**BASE, "columns": "a,"}, "r", "separated by commas"),
        ({**BASE, "columns": '"a'}, "r", "separated by commas"),
        ({**BASE, "filter": " "}, "r", "not empty"),
        ({"stream": "flights"}, "r", "neither"),
        ({**BASE, "url": "http://x"}, "r", "both"),
        ({"url": "ftp://x", "stream": "s"}, "r", "http://host"),
        ({"path": "/s"}, "r", "'stream' is missing"),
        ({**BASE, "query": "SELECT 1"}, "r", "put stream into its SQL"),
        ({"path": "/s", "query": "SELECT 1", "limit": "1"}, "r", "put limit into its SQL"),
        ({"path": "/s", "query": "SELECT 1", "asOf": "3"}, "r", "'asOf' is for a stream"),
        ({**BASE, "txnAppId": "a"}, "w", "belong together"),
        ({**BASE, "txnVersion": "1"}, "w", "belong together"),
        ({**BASE, "startingPosition": "middle"}, "s", "earliest, latest or a commit position"),
        ({**BASE, "startingPosition": "-1"}, "s", "earliest, latest or a commit position"),
    ],
)
def test_wrong_options_are_refused_with_a_reason(
    raw: dict[str, str], use: str, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Options.parse(raw, use)


def test_a_cluster_that_does_not_answer_is_said(tmp_path: Path) -> None:
    said = str(
        _ours("java.lang.IllegalStateException: Cannot call x on a stopped SparkContext.", tmp_path)
    )
    assert "see that a master runs at that address" in said
    assert "IllegalStateException" not in said


def test_options_of_spark_itself_are_let_through() -> None:
    assert Options.parse({**BASE, "checkpointLocation": "/c"}, "x").stream == "flights"


def test_the_token_is_not_shown_and_may_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHRONICLE_TOKEN", "sesame")
    options = Options.parse({"url": "http://localhost:8000", "stream": "s"}, "r")
    assert options.token == "sesame"
    assert "sesame" not in repr(options)
    assert Options.parse({**BASE}, "r").token is None
    assert pickle.loads(pickle.dumps(options)) == options


def test_auto_takes_spark_only_for_what_is_worth_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = importlib.import_module("chronicle.ingest.pipeline")
    (tmp_path / "a.csv").write_text("t\n1\n")

    def chosen(*inputs: str, **how: str) -> str:
        name: str = engines.choose_engine(engines.IngestRequest(list(inputs), "s", **how))
        return name

    small = str(tmp_path / "a.csv")
    assert chosen(small) == "arrow"
    assert chosen(small, master="local[2]") == "arrow"
    assert chosen("s3a://bucket/events", master="local[2]") == "spark"
    assert chosen(small, engine="spark") == "spark"
    monkeypatch.setattr(engines, "SPARK_BYTES_MIN", 4)
    assert chosen(small, master="local[2]") == "spark"
