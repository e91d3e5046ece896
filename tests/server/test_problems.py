"""Every way to fail has one document, one status and a stable type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import chronicle.errors as errors
from chronicle.errors import OUTSIDE, ChronicleError
from chronicle.server import create_token
from chronicle.server.http.replies import CODES

ALL = sorted(OUTSIDE, key=lambda kind: kind.__name__)


def document_of(response: Any) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["status"] == response.status_code
    assert document["type"] == "urn:chronicle:" + document["code"]
    assert document["title"].lower() == document["code"].replace("-", " ")
    assert document["detail"]
    assert document["request_id"] == response.headers["x-request-id"]
    return document


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_each_error_of_the_database_answers_as_its_table_says(
    kind: type[ChronicleError], fake: Any, client: Any
) -> None:
    fake.taught["SELECT 2"] = kind("what, where, what to do")
    response = client.post("/v1/query", json={"sql": "SELECT 2"})
    document = document_of(response)
    shown = OUTSIDE[kind]
    assert (document["code"], document["status"]) == (shown.slug, shown.status)
    assert "what, where, what to do" in document["detail"]
    assert ("retry-after" in response.headers) == (shown.status == 503)


def test_a_token_within_its_scopes_is_told_how_far_it_reaches(client: Any, fake: Any) -> None:
    _, secret = create_token(fake.path, "some", ["read"], ["s*"])
    headers = {"Authorization": f"Bearer {secret}"}
    document = document_of(client.get("/v1/streams/flights", headers=headers))
    assert document["code"] == "forbidden"
    assert "reaches the streams s*, not 'flights'" in document["detail"]


def test_no_code_is_left_over() -> None:
    slugs = {shown.slug for shown in OUTSIDE.values()} | {"method-not-allowed"}  # Starlette's
    source = "".join(
        path.read_text() for path in (Path(errors.__file__).parent / "server").rglob("*.py")
    )
    for code in set(CODES) - slugs:
        assert source.count(f'"{code}"') >= 2, f"{code} is a code that nothing raises"


def test_what_is_unexpected_is_not_shown(fake: Any, client: Any) -> None:
    fake.taught["SELECT 2"] = RuntimeError("a secret path /etc/x")
    response = client.post("/v1/query", json={"sql": "SELECT 2"})
    document = document_of(response)
    assert (document["code"], document["status"]) == ("internal-error", 500)
    assert "secret" not in response.text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not-found"),
        ("GET", "/v1/nowhere", 404, "not-found"),
        ("PUT", "/v1/streams", 405, "method-not-allowed"),
        ("GET", "/v1/query?q=SELECT%201&format=xml", 406, "not-acceptable"),
        ("GET", "/v1/query", 422, "invalid-request"),
        ("DELETE", "/v1/queries/none", 404, "not-found"),
    ],
)
def test_http_errors_are_problems_too(
    method: str, path: str, status: int, code: str, client: Any
) -> None:
    response = client.request(method, path)
    document = document_of(response)
    assert (document["status"], document["code"]) == (status, code)
    assert status != 405 or "GET" in response.headers["allow"].split(", ")


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (b"{", {"content-type": "application/json"}, 400, "bad-request"),
        (b'{"sql": 1}', {"content-type": "application/json"}, 422, "invalid-request"),
        (b'{"sq": "x"}', {"content-type": "application/json"}, 422, "invalid-request"),
        (b'{"sql": "SELECT 1", "limit": -3}', {}, 422, "invalid-request"),
        (b'["SELECT 1"]', {}, 422, "invalid-request"),
        (b"<sql/>", {"content-type": "application/xml"}, 415, "unsupported-media-type"),
        (b"\xff", {"content-type": "text/plain"}, 400, "bad-request"),
    ],
)
def test_bodies_that_do_not_fit(
    content: bytes, headers: dict[str, str], status: int, code: str, client: Any
) -> None:
    document = document_of(client.post("/v1/query", content=content, headers=headers))
    assert (document["status"], document["code"]) == (status, code)
    if code == "invalid-request":
        assert document["errors"][0]["where"].startswith("body")
