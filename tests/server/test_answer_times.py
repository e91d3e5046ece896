"""Times in answers as RFC 3339 or as integers, for those who read naive ones as local."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.errors import InvalidArgument
from chronicle.server.service.row_stream import with_times

QUERY = (
    "SELECT TIMESTAMP '2018-08-01 05:00:00.5' AS a, TIMESTAMPTZ '2018-08-01 05:00:00+02' AS b, "
    "DATE '2018-08-01' AS d, NULL::TIMESTAMP AS n"
)


@pytest.mark.parametrize(
    ("form", "a", "b"),
    [
        ("iso", "2018-08-01T05:00:00.500000", "2018-08-01T03:00:00Z"),
        ("rfc3339", "2018-08-01T05:00:00.500000Z", "2018-08-01T03:00:00.000000Z"),
        ("epoch_s", 1533099600, 1533092400),
        ("epoch_ms", 1533099600500, 1533092400000),
        ("epoch_ns", 1533099600500000000, 1533092400000000000),
    ],
)
@pytest.mark.parametrize("format", ["json", "ndjson"])
def test_a_query_in_every_form(api: Any, form: str, a: Any, b: Any, format: str) -> None:
    path = f"/v1/query?format={format}&time_format={form}"
    told = api.post(path, json={"sql": QUERY}).json()
    row = told["rows"][0] if format == "json" else told
    assert (row["a"], row["b"], row["d"], row["n"]) == (a, b, "2018-08-01", None)


def test_events_and_other_formats(api: Any) -> None:
    api.post("/v1/streams/flights/events", json=[{"timestamp": "2018-08-01T05:00:00Z"}])
    path = "/v1/streams/flights/events?columns=timestamp&time_format=epoch_ms"
    assert api.get(path).json() == [{"timestamp": 1533099600000}]
    assert api.get(f"{path}&format=csv").text.split() == ["timestamp", "1533099600000"]
    text = api.get(f"{path}&int64_as_string=true").json()
    assert text == [{"timestamp": "1533099600000"}]
    refused = api.get(f"{path}&format=arrow")
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid-argument")
    assert api.get(path.replace("epoch_ms", "soon")).status_code == 422


@given(
    st.integers(-(2**62), 2**62),
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_epochs_are_rounded_down_or_refused(ticks: int, unit: str, wanted: str) -> None:
    rows = pa.record_batch([pa.array([ticks, None], pa.timestamp(unit))], ["t"])
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    expected = ticks * scale[wanted] // scale[unit]
    try:
        told = with_times(rows, f"epoch_{wanted}").column(0).to_pylist()
    except InvalidArgument:
        assert not -(2**63) < expected < 2**63
        return
    assert told == [expected, None]


@given(st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)))
def test_rfc_3339_is_what_it_was(moment: dt.datetime) -> None:
    rows = pa.record_batch([pa.array([moment], pa.timestamp("us"))], ["t"])
    told = with_times(rows, "rfc3339").column(0)[0].as_py()
    assert dt.datetime.fromisoformat(told) == moment.replace(tzinfo=dt.timezone.utc)
