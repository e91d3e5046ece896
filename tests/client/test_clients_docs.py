"""docs/clients.md: its examples run, and its lists are what there is."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database
from chronicle.catalog.streams import Stream
from chronicle.client import RemoteDatabase, RemoteJob, RemoteLive, RemoteStream
from chronicle.live.engine import LiveHandle
from chronicle.query.contract.result import Result

from .test_connect import public

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SCHEMA = pa.schema(
    [("timestamp", pa.timestamp("us")), ("icao24", pa.string()), ("altitude", pa.float64())]
)


@pytest.mark.parametrize(
    ("row", "kind", "more"),
    [
        ("database(, server)?", RemoteDatabase, set()),
        ("database(, embedded)?", Database, set()),
        ("stream(, server)?", RemoteStream, set()),
        ("stream(, embedded)?", Stream, set()),
        ("result", Result, {"notes"}),
        ("live query", RemoteLive, {"name", "sql", "sink"}),
        ("live query", LiveHandle, {"name"}),
        ("job", RemoteJob, {"id", "kind"}),
    ],
)
def test_the_page_lists_every_method(row: str, kind: type, more: set[str]) -> None:
    rows = re.finditer(rf"^\| {row} \| (?P<names>.*) \|$", PAGE, re.MULTILINE)
    names = {name for each in rows for name in re.findall(r"`(\w+)`", each["names"])}
    assert names == public(kind) | more


def test_the_examples_run(
    served: Any,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embedded, first, followed, managed, keyed, standard, alchemy, unblocked = (
        text.replace("127.0.0.1:8000", f"127.0.0.1:{served.port}")
        for text in EXAMPLES
        if "adbc" not in text  # tests/server/test_flight_sql.py runs it
    )
    names: dict[str, Any] = {"chronicle": chronicle, "schema": SCHEMA}
    monkeypatch.chdir(tmp_path)
    exec(embedded, {})
    assert capsys.readouterr().out.endswith("1 row; 2 columns\n")
    exec(first, names)
    assert names["frame"]["top"].tolist() == [1024.5]
    with chronicle.connect(served.url) as db:
        names |= {"flights": db.stream("flights"), "number": 1}
        names["batch"] = [{"timestamp": "2018-08-01T05:00:10Z", "altitude": 12000.0}]
        exec(keyed, names)
        exec(keyed, names)
        assert names["flights"].count == 2
        exec(standard, names)
        assert "[('4b1803', 1024.5), (None, 12000.0)] True" in capsys.readouterr().out
        if importlib.util.find_spec("sqlalchemy") is not None:
            registry = importlib.import_module("sqlalchemy.dialects").registry
            registry.register("chronicle", "chronicle.dbapi.dialect", "ChronicleDialect")
            exec(alchemy, names)
            assert "['flights']" in capsys.readouterr().out
            assert len(names["frame"]) == 2
        exec(followed.replace('"now"', "0").replace("where=", "follow=False, where="), names)
        assert "12000.0" in capsys.readouterr().out
    ends = unblocked.replace('after="now"', "after=0, follow=False")
    exec(f"async def run():\n{textwrap.indent(ends, '    ')}", names)
    asyncio.run(names["run"]())
    assert "(2,) 2" in capsys.readouterr().out
    exec(managed, names)  # closes the server to who has no token
    out = capsys.readouterr().out
    assert out.startswith("altitude done\n['deploy', 'grafana', 'grafana'] True")
