"""docs/recipes.md: blocks run, configurations are read, and what their programs send is taken."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from chronicle.tests.patience import PATIENCE_S

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
HERE = "127.0.0.1:8000"
ASK = httpx.Client(timeout=PATIENCE_S)  # the first lines have their kernels loaded


@pytest.fixture(scope="module", autouse=True)
def connection_is_closed() -> Iterator[None]:
    with ASK:
        yield


def block(heading: str, kind: str) -> str:
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found = re.search(rf"^```{kind}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def served(served: Any) -> Any:
    """The server, with the streams of the page."""
    statements = re.search(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert statements is not None
    for statement in statements[1].split(";\n"):
        if statement.strip():
            served.database.sql(statement)
    return served


def test_curl(served: Any) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    script = block("curl", "sh").replace(HERE, f"127.0.0.1:{served.port}")
    for _ in range(2):  # again: the key keeps the event from being stored twice
        done = subprocess.run(
            ["sh", "-ec", script], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith('host,message\r\n"a","up"\r\n') or "a,up" in done.stdout
    assert served.database.stream("log").count == 1


def test_telegraf(served: Any) -> None:
    said = tomllib.loads(block("Telegraf", "toml"))
    (output,), (cpu,) = said["outputs"]["influxdb_v2"], said["inputs"]["cpu"]
    assert set(cpu["fieldinclude"]) | set(cpu["taginclude"]) <= set(
        served.database.stream("cpu").schema.names
    )
    # as Telegraf 1.x sends it: line protocol in nanoseconds, sorted tags, gzip left out here
    sent = "cpu,cpu=cpu-total,host=web1 usage_idle=93.5,usage_user=4.25 1793512800000000000\n"
    answer = ASK.post(
        output["urls"][0].replace(HERE, f"127.0.0.1:{served.port}") + "/api/v2/write",
        params={"bucket": output["bucket"], "org": output["organization"], "precision": "ns"},
        headers={"Authorization": "Token chr_any", "Content-Type": "text/plain; charset=utf-8"},
        content=sent,
    )
    assert answer.status_code == 204, answer.text
    rows = served.database.sql("SELECT host, cpu, usage_idle, usage_user FROM cpu").fetchall()
    assert rows == [("web1", "cpu-total", 93.5, 4.25)]


def test_vector(served: Any) -> None:
    sink = yaml.safe_load(block("Vector", "yaml"))["sinks"]["chronicle"]
    event = {"timestamp": "2026-11-01T06:00:00.123456Z", "host": "a", "message": "up"}
    assert set(sink["encoding"]["only_fields"]) == set(event)
    answer = ASK.post(
        sink["uri"].replace(HERE, f"127.0.0.1:{served.port}"),
        headers=sink["request"]["headers"],
        content="\n".join([json.dumps(event)] * 2) + "\n",
    )
    assert answer.json()["appended"] == 2


def test_fluent_bit(served: Any) -> None:
    (output,) = yaml.safe_load(block("Fluent Bit", "yaml"))["pipeline"]["outputs"]
    assert (output["host"], output["port"]) == ("127.0.0.1", 8000)
    name, _, value = output["header"].partition(" ")
    line = {output["json_date_key"]: "2026-11-01T06:00:00.123456Z", "host": "a", "message": "up"}
    answer = ASK.post(
        f"{served.url}{output['uri']}", headers={name: value}, content=json.dumps(line) + "\n"
    )
    assert answer.json()["appended"] == 1


def test_grafana(served: Any) -> None:
    served.database.sql(
        "INSERT INTO cpu (time, usage_user) VALUES ('2026-11-01 06:00:10', 2), "
        "('2026-11-01 06:00:50', 4), ('2026-11-01 06:01:10', 6), ('2026-11-02 00:00:00', 8)"
    )
    asked = json.loads(block("Grafana", "json"))
    options = asked["url_options"]
    # what Grafana puts in the place of its variables
    body = options["data"].replace("${__from}", "1793512800000").replace("${__to}", "1793520000000")
    answer = ASK.request(
        options["method"],
        asked["url"].replace(HERE, f"127.0.0.1:{served.port}"),
        headers={"Content-Type": options["body_content_type"]},
        content=body,
    )
    assert answer.status_code == 200, answer.text
    rows = answer.json()[asked["root_selector"]]
    assert rows == [
        {"time": 1793512800000, "usage": 3.0},
        {"time": 1793512860000, "usage": 6.0},
    ]
    assert [column["selector"] for column in asked["columns"]] == list(rows[0])


def test_prometheus(served: Any) -> None:
    (job,) = yaml.safe_load(block("Prometheus", "yaml"))["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [HERE]
    answer = ASK.get(served.url + job["metrics_path"])
    assert "chronicle_store_events" in answer.text


def test_frames(served: Any) -> None:
    served.database.sql("INSERT INTO log VALUES ('2026-11-01 06:00:00', 'a', 'up')")
    names: dict[str, Any] = {}
    exec(block("pandas and polars", "python").replace(HERE, f"127.0.0.1:{served.port}"), names)
    assert names["polars_frame"].shape == (1, 3)
    assert len(names["lines"]) == 2
