"""`chronicle ingest` as its users meet it: what it did, and what it refuses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from .conftest import Run


def test_ingest_says_what_it_did(run: Run, sensors: Path) -> None:
    outcome = run("ingest", "sensors.csv", "--stream", "sensors")
    assert outcome.code == 0
    assert "10 events, 9 of them late from 1 file stored in stream 'sensors'" in outcome.out
    assert "it has 20 now" in outcome.out
    report = run("ingest", "sensors.csv", "--stream", "sensors", "--json")
    assert json.loads(report.out)["stored"] == 10


def test_ingest_with_every_option_of_columns(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pump_1.txt").write_text("01.02.2020 05:00;7;a;N/A\n01.02.2020 06:00;8;b;3\n")
    outcome = run(
        *("ingest", "*.txt", "--stream", "s", "--create", "--format", "csv"),
        *("--columns", "when,code,junk,x", "--separator", ";", "--null", "N/A"),
        *("--rename", "when=t", "--time", "t", "--time-format", "%d.%m.%Y %H:%M"),
        *("--types", "code=string,x=float", "--select", "code,x", "--file-column", "sensor"),
        *("--codec", "zstd", "--retention", "30 days", "--batch-size", "1"),
    )
    assert outcome.code == 0, outcome.err
    rows = json.loads(run("sql", "-f", "json", "SELECT * FROM s").out)
    assert rows == [
        {"t": "2020-02-01T05:00:00", "code": "7", "x": None, "sensor": "pump_1"},
        {"t": "2020-02-01T06:00:00", "code": "8", "x": 3.0, "sensor": "pump_1"},
    ]


def test_ingest_with_every_option_of_text_files(run: Run, tmp_path: Path) -> None:
    text = "by hand\n2020-02-01^'Maß^1'^1.234,5\n2020-02-02^-^7\n"
    (tmp_path / "f.csv").write_bytes(text.encode("latin-1"))
    outcome = run(
        *("ingest", "f.csv", "--stream", "s", "--create", "--time", "t", "--encoding", "latin-1"),
        *("--delimiter", "^", "--quote", "'", "--skip", "1", "--no-header", "--columns", "t,s,x"),
        *("--null", "-", "--decimal", ","),
    )
    assert outcome.code == 0, outcome.err
    assert json.loads(run("sql", "-f", "json", "SELECT s, x FROM s ORDER BY t").out) == [
        {"s": "Maß^1", "x": 1234.5},
        {"s": None, "x": 7.0},
    ]
    for option, value in (("--delimiter", "ab"), ("--encoding", "latin-2"), ("--decimal", ";")):
        refused = run("ingest", "f.csv", "--stream", "s", option, value)
        assert (refused.code, "Traceback" in refused.err) == (2, False), refused.err


def test_ingest_reads_local_times_in_two_columns_and_formats(run: Run, tmp_path: Path) -> None:
    rows = "day;clock;x\n05.07.2026;12:00;1\n2026-07-06;13:00;2\n25.10.2026;02:30;3\n"
    (tmp_path / "local.csv").write_text(rows)
    arguments = [
        *("ingest", "local.csv", "--stream", "s", "--create", "--time", "day"),
        *("--time-of-day", "clock", "--time-zone", "Europe/Berlin"),
        *("--time-format", "%d.%m.%Y %H:%M", "--time-format", "iso"),
    ]
    unknown = run(*arguments, "--time-zone", "Europe/Berln")
    assert unknown.code == 2
    assert "name of a time zone" in unknown.err
    refused = run(*arguments)
    assert refused.code == 1
    assert "line 4" in refused.err
    assert "'25.10.2026 02:30' was twice in Europe/Berlin" in refused.err
    assert run(*arguments, "--ambiguous", "later").code == 0
    stored = json.loads(run("sql", "-f", "json", "SELECT * FROM s").out)
    assert stored == [
        {"day": "2026-07-05T10:00:00", "x": 1},
        {"day": "2026-07-06T11:00:00", "x": 2},
        {"day": "2026-10-25T01:30:00", "x": 3},
    ]


def test_ingest_from_stdin(run: Run) -> None:
    rows = gzip.compress(b'[{"at": 1533101250000, "x": 1}, {"at": 1533101260000, "x": 2.5}]')
    outcome = run("ingest", "-", "--stream", "s", "--time", "at", "--create", stdin=rows)
    assert outcome.code == 0
    assert "note: at: numbers taken as milliseconds since 1970" in outcome.err
    assert "2018-08-01 05:27:30" in run("sql", "SELECT min(at) FROM s").out


def test_ingest_keeps_bad_rows_when_asked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(
        "t,x\n2020-01-01,1\nnever,2\n2020-01-03,abc\n2020-01-04,4\n2020-01-05,5\n"
    )
    arguments = ("ingest", "f.csv", "--stream", "s", "--time", "t", "--create", "--types", "x=int")
    strict = run(*arguments)
    assert strict.code == 1
    assert "f.csv, line 3 (row 2), column 't': expected a time" in strict.err
    assert "nothing was stored in 's'" in strict.err
    assert "--bad-rows" in strict.err
    kept = run(*arguments, "--on-error", "quarantine", "--quarantine-file", "bad.ndjson")
    assert kept.code == 0
    assert "2 of 5 rows could not be read" in kept.err
    assert "kept in bad.ndjson" in kept.err
    lines = [json.loads(line) for line in (tmp_path / "bad.ndjson").read_text().splitlines()]
    assert [(line["line"], line["column"]) for line in lines] == [(3, "t"), (4, "x")]
    assert "3" in run("sql", "SELECT count(*) FROM s").out
    none = run("ingest", "f.csv", "--stream", "s", "--on-error", "skip", "--rename", "x=t,t=x")
    assert none.code == 1
    assert "nothing could be read" in none.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"t,x\nnan,1\n2020-01-01,1\n2020-01-01,1\n", "column 't'"),
        (b"t,x\n2020-01-01,1\n2020-01-02\n", "expected 2 values, found 1"),
        (b"PAR1 is how it begins, but no more", "not a complete Parquet file"),
        (b"ARROW1\0\0 is how it begins, but no more", "not a complete Arrow"),
    ],
)
def test_bad_input_is_one_clear_error(
    run: Run, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "f.dat").write_bytes(content)
    outcome = run("ingest", "f.dat", "--stream", "s", "--time", "t", "--create")
    assert outcome.code == 1
    assert message in outcome.err
    assert sum(line.startswith("error:") for line in outcome.err.splitlines()) == 1
    assert "'s'" not in run("streams").out
    assert run("check").code == 0


def test_create_on_a_stream_that_is_there_is_an_error(run: Run, sensors: Path) -> None:
    again = ("ingest", "sensors.csv", "--stream", "sensors", "--time", "t", "--create")
    outcome = run(*again)
    assert outcome.code == 1
    assert "has 10 events" in outcome.err
    assert "--if-exists append" in outcome.err
    assert json.loads(run("sql", "-f", "json", "SELECT count(*) AS n FROM sensors").out) == [
        {"n": 10}
    ]
    outcome = run(*again, "--if-exists", "append", "--codec", "zstd")
    assert outcome.code == 0
    assert "keeps its own" in outcome.err
    assert "it has 20 now" in outcome.out
    assert run(*again[:-1], "--if-exists", "append").code == 2
    assert run(*again, "--if-exists", "replace").code == 2
    assert run(*again, "--dry-run").code == 1
