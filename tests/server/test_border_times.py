"""What a server says of events at the ends of 64-bit time, by every unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import chronicle

from ..borders import HIGH, LOW
from ..query.test_borders import UNITS, stream_of, ticks_of
from ..rounds import LONG

SOME_UNITS = UNITS[1:] if LONG else ("s", "ns")
ONE_UNIT = UNITS[1:] if LONG else ("s",)

TICKS = [LOW, LOW + 1, -1, 0, HIGH - 1, HIGH]


@pytest.fixture
def served(request: Any, tmp_path: Any, serve_app: Callable[..., Any]) -> Any:
    with chronicle.open(tmp_path / "s") as db:
        stream_of(db, request.param, TICKS, [1, 2, 3, 4, 5, 6])
        yield db, serve_app(db), request.param


@pytest.mark.parametrize("served", SOME_UNITS, indirect=True)
def test_ranges_of_events_profiles_and_aggregates(served: Any) -> None:
    _, api, unit = served
    for start, end in ((None, None), (LOW + 1, None), (None, HIGH), (-1, HIGH), (HIGH, None)):
        asked = {k: str(v) for k, v in (("start", start), ("end", end)) if v is not None}
        inside = [t for t in TICKS if (start or LOW) <= t and (end is None or t < end)]
        events = api.get("/v1/streams/s/events", params={"format": "csv", **asked})
        assert len(events.text.splitlines()) == 1 + len(inside)
        found = api.get("/v1/streams/s/aggregate", params={"attribute": "x", **asked}).json()
        assert found["aggregates"]["x"]["count"] == len(inside)
        for buckets in (1, 400):
            more = {"attributes": "x", "buckets": buckets, **asked}
            answer = api.get("/v1/streams/s/profile", params=more)
            assert answer.status_code == 200, (unit, asked, buckets, answer.text)
            assert sum(row["count"] for row in answer.json()) == len(inside)
            assert max(row["max_x"] for row in answer.json()) == 1 + TICKS.index(inside[-1])


@pytest.mark.parametrize("served", ONE_UNIT, indirect=True)
def test_updates_leave_the_times(served: Any) -> None:
    db, api, _ = served
    for at, tick in enumerate(TICKS):
        body: dict[str, Any] = {"set": {"x": "x + 10"}, "start": tick}
        body |= {"end": tick + 1} if tick < HIGH else {}
        assert api.post("/v1/streams/s/update", json=body).json() == {"updated": 1}, tick
        assert ticks_of(db.stream("s").scan().read_all()) == [
            (t, n + 11 if n <= at else n + 1) for n, t in enumerate(TICKS)
        ]
    copied = "INSERT INTO s SELECT * FROM s WHERE x IN (11, 13, 14, 15)"
    assert api.post("/v1/query", json={"sql": copied}).status_code == 200
    times = [t for t, _ in ticks_of(db.stream("s").scan().read_all())]
    assert times == sorted([*TICKS, LOW, -1, 0, HIGH - 1])


@pytest.mark.parametrize("served", ONE_UNIT, indirect=True)
def test_rfc3339_has_every_year(served: Any) -> None:
    api = served[1]
    plain, zoned = (
        [row["t"] for row in api.get("/v1/streams/s/events", params={"time_format": form}).json()]
        for form in ("iso", "rfc3339")
    )
    assert [t.removesuffix("Z").split(".")[0] for t in zoned] == [t.split(".")[0] for t in plain]
    assert all(t.endswith("Z") for t in zoned)


@pytest.mark.parametrize("served", ["us"], indirect=True)
def test_a_parameter_beyond_the_years_is_named(served: Any) -> None:
    value = {"type": "timestamptz", "value": "9999-12-31T23:59:59-14:00"}
    answer = served[1].post(
        "/v1/query", json={"sql": "SELECT x FROM s WHERE t < $1", "params": [value]}
    )
    assert answer.status_code == 400
    assert "$1 is beyond the years 1 to 9999" in answer.json()["detail"]
