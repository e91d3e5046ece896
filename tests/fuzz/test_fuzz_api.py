"""The whole API from its OpenAPI document: any order of any requests, valid or not.

schemathesis builds the requests; what it may cost others is judged by the watcher of
:mod:`.target`, besides its own check that no answer is a 5xx of ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import schemathesis

from chronicle.tests.fuzz.target import NIGHTLY, Target, pieces
from chronicle.tests.patience import PATIENCE_S

STEPS = 10


def test_no_order_of_requests_costs_others_anything(tmp_path: Path) -> None:
    with Target(tmp_path, MAX_ROWS=1000, QUERY_TIMEOUT_MS=3000) as target:
        document = target.http.get("/openapi.json").json()
        schema = schemathesis.openapi.from_dict(document)
        schema.config.base_url = target.url
        asked = 0

        class Requests(schema.as_state_machine()):  # type: ignore[misc]
            """Requests of someone who may do anything with streams ``w*``."""

            def get_call_kwargs(self, case: Any) -> dict[str, Any]:
                return {
                    "headers": {"Authorization": f"Bearer {target.writer}"},
                    "timeout": PATIENCE_S,
                }

            def before_call(self, case: Any, **_: Any) -> None:
                if case.path.endswith(("/tail", "/rows")):  # answers that would not end
                    case.query = {**(case.query or {}), "follow": "false"}

            def validate_response(self, response: Any, case: Any, **_: Any) -> None:
                nonlocal asked
                asked += 1
                shown = f"{case.method} {case.formatted_path} {case.query} {case.body!r:.500}"
                if response.status_code in (500, 502):
                    target.note("500", response.text, shown)

        rounds = 0
        for number, size in pieces("API", target):
            settings = hypothesis.settings(
                max_examples=size // STEPS if NIGHTLY else 6,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                derandomize=not NIGHTLY,
                suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.generate],
            )
            hypothesis.seed(number)(Requests.TestCase)
            Requests.run(settings=settings)
            target.canaries(f"requests of schemathesis, seed {number}")
            rounds += settings.max_examples
    assert not target.faults, "\n".join(map(str, target.faults))
    assert asked > rounds
