"""The API describes itself: what /openapi.json says is what the server does."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import hypothesis
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.core.failures import Failure
from schemathesis.specs.openapi.checks import positive_data_acceptance

from chronicle.server.access.tokens import create_token
from chronicle.server.routes.pages import page
from chronicle.tests.patience import PATIENCE_S

ROUNDS = 3
STEPS = settings(
    max_examples=5,
    stateful_step_count=8,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@pytest.fixture
def document(api: Any) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, ways in document["paths"].items():
        for method, operation in ways.items():
            yield path, method, operation


def test_every_route_says_what_it_answers(document: dict[str, Any]) -> None:
    assert len(list(operations(document))) > 60
    for path, method, operation in operations(document):
        for status, answer in operation["responses"].items():
            content = answer.get("content", {})
            where = f"{method} {path} {status}"
            assert content or status in ("204", "304"), where
            assert all(kind["schema"] for kind in content.values()), where
            assert (list(content) == ["application/problem+json"]) == (status == "default"), where


class Program:
    """A program that knows nothing but the document: examples, and what it was answered."""

    def __init__(self, api: Any, document: dict[str, Any]) -> None:
        self.api = api
        self.document = document
        self.told: dict[str, Any] = {}
        self.headers: dict[str, str] = {}

    def value(self, parameter: dict[str, Any]) -> Any:
        return self.told.get(parameter["name"], parameter.get("example"))

    def ask(self, path: str, method: str, operation: dict[str, Any]) -> None:
        """Send one request with everything that is required, and judge the answer."""
        given = operation.get("parameters", [])
        named = {p["name"]: quote(str(self.value(p)), safe="") for p in given if p["in"] == "path"}
        query = {p["name"]: self.value(p) for p in given if p["in"] == "query"}
        asked = {
            p["name"]: query[p["name"]]
            for p in given
            if p["in"] == "query" and (p["required"] or p["name"] == "follow")
        }
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        sent = {} if body is None else {"json": example_of(body)}
        more = {"params": asked, "headers": self.headers, **sent}
        response = self.api.request(method.upper(), path.format(**named), **more)
        where = f"{method} {path}: {response.status_code} {response.text[:300]}"
        assert response.status_code < 400, where
        answer = operation["responses"].get(str(response.status_code))
        assert answer is not None, where
        kind = response.headers.get("content-type", "").partition(";")[0]
        assert kind in answer.get("content", {"": None}), where
        if kind == "application/json":
            schema = {
                **answer["content"][kind]["schema"],
                "components": self.document["components"],
            }
            jsonschema_rs.validate(schema, response.json())
            if isinstance(response.json(), dict):
                told = response.json()
                self.told |= {k: told[k] for k in told.keys() & {"position", "token_id", "job_id"}}
                self.told["until"] = self.told.get("position")
                if "secret" in told:  # the first token closes the server to all who have none
                    self.headers.setdefault("authorization", f"Bearer {told['secret']}")


def example_of(body: dict[str, Any]) -> Any:
    return body["example"]


def test_a_program_that_knows_only_the_document_drives_every_route(api: Any) -> None:
    document = api.get("/openapi.json").json()
    program = Program(api, document)
    api.delete("/v1/streams/flights")

    def order(way: tuple[str, str, dict[str, Any]]) -> tuple[bool, int]:
        return way[0].endswith("/commit"), len(way[0])

    ways = sorted(operations(document), key=order)
    left: dict[str, str] = {}
    for wave in (("post", "put"), ("get",), ("delete",)):  # what makes, what asks, what ends
        waiting = [way for way in ways if way[1] in wave][:: -1 if wave == ("delete",) else 1]
        for _ in range(3):  # one may need what another one makes
            left |= {way[2]["operationId"]: trouble(program, way) for way in waiting}
            waiting = [way for way in waiting if left[way[2]["operationId"]]]
    left = {name: why for name, why in left.items() if why}
    # Nothing runs that could be cancelled, and a transaction that was committed has ended.
    assert set(left) <= {"cancel_query", "abort"}, "\n".join(left.values())


def trouble(program: Program, way: tuple[str, str, dict[str, Any]]) -> str:
    try:
        program.ask(*way)
    except (AssertionError, jsonschema_rs.ValidationError) as error:
        return str(error)
    return ""


def test_any_order_of_any_requests_is_answered_as_described(database: Any, live: Any) -> None:
    """All checks of schemathesis but one: no schema says which texts are SQL, times or columns."""
    _, secret = create_token(database.path, "anybody", ["read", "write", "admin"])
    served = live(database)
    schema = schemathesis.openapi.from_dict(served.http.get("/openapi.json").json())
    schema.config.base_url = str(served.http.base_url)
    wrong: dict[str, str] = {}

    class Requests(schema.as_state_machine()):  # type: ignore[misc]
        """Requests of anybody."""

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"timeout": PATIENCE_S, "headers": {"Authorization": f"Bearer {secret}"}}

        def before_call(self, case: Any, **_: Any) -> None:
            if case.path.endswith(("/tail", "/rows")):  # answers that would not end
                case.query = {**(case.query or {}), "follow": "false"}

        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            try:
                case.validate_response(response, excluded_checks=[positive_data_acceptance])
            except* Failure as group:
                for failure in group.exceptions:
                    shown = re.sub(r"\s+", " ", str(failure))[:300]
                    wrong[f"{case.method} {case.path}: {type(failure).__name__}"] = (
                        f"{shown} | {case.formatted_path} {case.query} {case.body!r:.200} -> "
                        f"{response.status_code} {response.text[:200]}"
                    )

    for seed in range(ROUNDS):
        hypothesis.seed(seed)(Requests.TestCase)
        # Answers differ from run to run, as in the names of positions, which is held against them.
        with contextlib.suppress(hypothesis.errors.FlakyStrategyDefinition):
            Requests.run(settings=STEPS)
    assert not wrong, "\n".join(f"{key}: {value}" for key, value in wrong.items())


def test_the_page_for_people_stands_alone(api: Any, document: dict[str, Any]) -> None:
    answer = api.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    text = answer.text
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy
    assert not re.findall(r"<script|<link|<img|https?://(?!127\.0\.0\.1)|<[^>]*\son\w+=", text)
    links = re.findall(r'href="([^"]*)"', text)
    assert {link for link in links if not link.startswith("#")} == {"openapi.json"}
    anchors = set(re.findall(r'id="([^"]*)"', text))
    assert {link[1:] for link in links if link.startswith("#")} <= anchors
    assert {operation["operationId"] for _, _, operation in operations(document)} <= anchors
    again = api.get("/docs", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_hostile_texts_stay_texts(document: dict[str, Any]) -> None:
    hostile = "</style><script>alert(1)</script><img src=x onerror=alert(1)>"
    for _, _, operation in operations(document):
        operation["summary"] = operation["description"] = hostile
        for parameter in operation.get("parameters", ()):
            parameter["description"] = parameter["example"] = hostile
    assert not re.findall(r"<script|<img", page(document))
