"""What each scope lets in: every route of docs/rest.md, with every scope, and without a token."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import chronicle
from chronicle.server import create_token
from chronicle.server.access.tokens import INCLUDED, SCOPES

from .flights import SPEC
from .test_api_document import example_of, operations

PAGE = (Path(chronicle.__file__).parent / "docs" / "rest.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([A-Z]+) (/[^`]*)` \|.*\| ([^|]+) \|$", re.MULTILINE)
ANYBODY = {"–"}
ALL_STREAMS = {"admin on all streams": ("admin",), "operate on all streams": ("operate",)}
NEEDS = {
    "any": SCOPES,
    "by statement": ("read",),  # the example is a SELECT
    "admin, and read on what it reads": ("admin",),
    "ingest; admin to truncate or replace": ("ingest",),
    "ingest; write to create": ("ingest",),
    "its owner, or operate": SCOPES,  # of nothing that runs, each may say that it ends
    **ALL_STREAMS,
    "read or ingest": ("read", "ingest"),
}
"""The scopes that cells of the table stand for, where they say more than one word."""


def rows() -> Iterator[tuple[str, str, str]]:
    table = PAGE[PAGE.index("| route | what it does | scope |") :]
    return ((found[1], found[2], found[3]) for found in ROW.finditer(table))


@pytest.fixture
def told(database: Any, serve_app: Callable[..., Any]) -> dict[str, Any]:
    """The document, a server with a stream, and secrets of each scope, here and elsewhere."""
    database.sql("CREATE STREAM flights (timestamp TIMESTAMP, icao24 VARCHAR, altitude DOUBLE)"
                 " TIMESTAMP BY timestamp")  # fmt: skip
    open_api = serve_app(database)
    document = open_api.get("/openapi.json").json()
    secrets = {scope: create_token(database.path, scope, [scope])[1] for scope in SCOPES}
    away = {scope: create_token(database.path, scope, [scope], ["x*"])[1] for scope in SCOPES}
    found = {(m.upper(), path): op for path, m, op in operations(document)}
    return {"api": serve_app(database), "operations": found, "secrets": secrets, "away": away}


def ask(told: dict[str, Any], method: str, path: str, secret: str | None) -> Any:
    """Send the example of a route."""
    operation = told["operations"][method, path]
    given = operation.get("parameters", [])
    named = {
        p["name"]: quote(str(p.get("example", "1")), safe="") for p in given if p["in"] == "path"
    }
    params = {
        p["name"]: p.get("example")
        for p in given
        if p["in"] == "query" and (p["required"] or p["name"] == "follow")
    }
    content = operation.get("requestBody", {}).get("content", {})
    more: dict[str, Any] = {}
    if "application/json" in content:
        more["json"] = example_of(content["application/json"])
    elif content:
        more["content"] = content["text/plain"]["example"]
    headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
    return told["api"].request(method, path.format(**named), params=params, headers=headers, **more)


def test_the_table_has_every_route(told: dict[str, Any]) -> None:
    assert {(method, path) for method, path, _ in rows()} == set(told["operations"])
    assert {scope for _, _, scope in rows()} <= {*NEEDS, *SCOPES, *ANYBODY}


def test_each_route_lets_in_the_scopes_of_the_table_and_no_other(told: dict[str, Any]) -> None:
    wrong = []
    # What drops the stream or the tokens comes last
    for method, path, needs in sorted(rows(), key=lambda row: (row[0] == "DELETE", -len(row[1]))):
        answer = ask(told, method, path, None)
        if (answer.status_code == 401) != (needs not in ANYBODY):
            wrong.append(f"{method} {path} without a token: {answer.status_code}")
        if needs in ANYBODY:
            continue
        wanted = NEEDS.get(needs, (needs,))
        for scope in (*(s for s in SCOPES if s != "admin"), "admin"):
            lets = any(each in INCLUDED[scope] for each in wanted)
            elsewhere = ask(told, method, path, told["away"][scope])
            inside = "{stream}" in path or needs in ALL_STREAMS
            if elsewhere.status_code == 401 or (inside and elsewhere.status_code != 403):
                wrong.append(f"{method} {path} with {scope} elsewhere: {elsewhere.status_code}")
            answer = ask(told, method, path, told["secrets"][scope])
            if (answer.status_code == 403) == lets or answer.status_code in (401, 500):
                wrong.append(f"{method} {path} with {scope}: {answer.status_code} {answer.text}")
        if (method, path) == ("DELETE", "/v1/streams/{stream}"):
            admin = {"authorization": f"Bearer {told['secrets']['admin']}"}
            told["api"].post("/v1/streams", json=SPEC, headers=admin)
    assert not wrong, "\n".join(wrong)


def test_what_scopes_include_is_in_the_manual() -> None:
    manual = (Path(chronicle.__file__).parent / "docs" / "server.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \| .* \| ([^|]+) \|$", manual, re.M)
    found = {scope: set(re.findall(r"`(\w+)`", includes)) for scope, includes in listed}
    told = {scope: found[scope] | {scope} for scope in SCOPES if scope != "admin"}
    assert {scope: found[scope] for scope in SCOPES}["admin"] == set()
    assert told == {scope: INCLUDED[scope] for scope in SCOPES if scope != "admin"}
    assert INCLUDED["admin"] == set(SCOPES)
