"""The documentation is part of the contract: routes, settings, errors and metrics stand in it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import chronicle
from chronicle.errors import OUTSIDE, InvalidArgument
from chronicle.server.access.settings import Settings, load_settings
from chronicle.server.http.replies import CODES, STATUSES

DOCS = Path(chronicle.__file__).parent / "docs"


def rest() -> str:
    return (DOCS / "rest.md").read_text()


def server() -> str:
    return (DOCS / "server.md").read_text()


def test_the_first_example_does_what_it_shows(
    tmp_path: Path, serve_app: Callable[..., Any]
) -> None:
    """The curl commands at the top of the page, sent as curl would send them."""
    block = re.search(r"```console\n(.*?)```", rest(), re.DOTALL)
    assert block is not None
    commands = re.split(r"^\$ ", block[1], flags=re.MULTILINE)[1:]
    outputs = []
    with chronicle.open(tmp_path / "store") as database:
        client = serve_app(database)
        for command in commands[1:]:
            words = iter(shlex.split(command))
            headers = {"content-type": "application/x-www-form-urlencoded"}
            path, body = "", ""
            for word in words:
                if word == "-H":
                    name, _, value = next(words).partition(":")
                    headers[name.lower()] = value.strip()
                elif word in ("-d", "--data-binary"):
                    body = next(words)
                elif word.startswith("localhost:8000"):
                    path = word.removeprefix("localhost:8000")
            response = client.post(path, content=body, headers=headers)
            assert response.status_code < 300, (command, response.text)
            outputs.append(response.text.strip())
    assert outputs[1] in commands[2], "the second command's answer stands below it"
    answered, shown = json.loads(outputs[2]), json.loads(commands[3].partition("icao24'\n")[2])
    for document in (answered, shown):
        del document["query_id"], document["elapsed_ms"]
    assert answered == shown


def test_every_parameter_is_named(client: Any) -> None:
    text = rest()
    missing = {
        (path, parameter["name"])
        for path, operations in client.get("/openapi.json").json()["paths"].items()
        for operation in operations.values()
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "query" and f"`{parameter['name']}" not in text
        and f"{parameter['name']}=" not in text
    }  # fmt: skip
    assert not missing


def test_every_error_is_in_the_table_with_its_status() -> None:
    listed = {
        code: status
        for status, codes in re.findall(r"^\| (\d{3}) \| (.*) \|$", rest(), re.MULTILINE)
        for code in re.findall(r"`([a-z-]+)`", re.sub(r"\([^)]*\)", "", codes))
    }
    assert set(listed) == set(CODES)
    for shown in OUTSIDE.values():
        assert listed[shown.slug] == str(shown.status), shown.slug
    assert {code: listed[code] for code in STATUSES} == {c: str(s) for c, s in STATUSES.items()}


def test_every_setting_is_in_the_table_with_its_default() -> None:
    rows = re.findall(r"^\| `(CHRONICLE_\w+)` \| (.*?) \| (.*?) \|$", server(), re.MULTILINE)
    listed = {name: (default.strip("`"), meaning) for name, default, meaning in rows}
    assert set(listed) == {f"CHRONICLE_{name.upper()}" for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "–" if default in (None, []) else str(default)
        shown = ",".join(default) if isinstance(default, list) and default else shown
        shown = shown.lower() if isinstance(default, bool) else shown
        assert listed[f"CHRONICLE_{name.upper()}"] == (shown, field.description)


def test_settings_that_other_pages_name_exist() -> None:
    known = {f"CHRONICLE_{name.upper()}" for name in Settings.model_fields}
    for path in (Path(chronicle.__file__).parent / "server").rglob("*.py"):
        for name in re.findall(r"CHRONICLE_[A-Z_]+[A-Z]", path.read_text()):
            assert name in known, f"{path.name} speaks of {name}"


def test_every_metric_is_in_the_table(client: Any) -> None:
    client.get("/v1/query?q=SELECT%201")
    exposed = set(re.findall(r"^# TYPE (\w+)", client.get("/metrics").text, re.MULTILINE))
    named = {name.removesuffix("_created") for name in exposed}
    text = server()
    missing = {
        name for name in named if name not in text and not name.startswith("chronicle_process_")
    }
    assert not missing
    listed = set(re.findall(r"`(chronicle_(?!process)\w+)`", text))
    assert listed <= named, listed - named
    assert all(name.startswith("chronicle_") for name in exposed)


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHRONICLE_PORT", "9001")
    monkeypatch.setenv("CHRONICLE_CORS_ORIGINS", "https://a.example, https://b.example")
    monkeypatch.setenv("CHRONICLE_MAX_ROWS", "5")
    settings = load_settings(port=None, max_rows=7)
    assert settings.port == 9001
    assert settings.cors_origins == ["https://a.example", "https://b.example"]
    assert settings.max_rows == 7, "what is given wins"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "many"),
        ("PORT", "70000"),
        ("IDEMPOTENCY_HOURS", "1"),
        ("QUERY_TIMEOUT_MS", "0"),
        ("LOG_LEVEL", "loud"),
    ],
)
def test_a_setting_that_cannot_be_is_named(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"CHRONICLE_{name}", value)
    with pytest.raises(InvalidArgument, match=f"CHRONICLE_{name}.*{value}"):
        load_settings()


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="colour"):
        load_settings(colour="red")


def test_openapi_is_sane(client: Any) -> None:
    document = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    identifiers = [
        operation["operationId"]
        for operations in document["paths"].values()
        for operation in operations.values()
    ]
    assert len(identifiers) == len(set(identifiers))
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            if path.startswith("/v1"):
                assert operation["security"] == [{"token": []}], (method, path)
            declared = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path))
    for reference in re.findall(r'"\$ref":\s*"([^"]*)"', json.dumps(document)):
        found = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
    for path in ("/v1/query", "/v1/explain"):
        body = document["paths"][path]["post"]["requestBody"]["content"]
        model = body["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert "sql" in document["components"]["schemas"][model]["properties"]
        assert "application/sql" in body
