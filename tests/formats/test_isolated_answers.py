"""What a worker says that was taken over: no answer of its is believed before it was looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from chronicle.errors import WorkerLost
from chronicle.formats.isolated import IsolatedReader
from chronicle.formats.layout import Layout
from chronicle.isolation.batches import describe, pack
from chronicle.schema import StreamSchema

ROWS = pa.record_batch({"t": [1, 2], "x": [0.5, None]})
NODE, PIECES = pack(ROWS)
DATA = pa.py_buffer(b"".join(bytes(p).ljust(-(-len(p) // 64) * 64, b"\0") for p in PIECES))
COLUMNS = [describe(ROWS.schema), "t"]
LOOK = {
    "format": "csv", "time": "t", "time_format": "ticks", "looked_at": 2, "bad": 0,
    "examples": [], "notes": [],
}  # fmt: skip


class Lease:
    """A worker that says what it was told to say."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self._messages = iter(messages)
        self.channel = self
        self.given_back = False

    def send(self, message: Any, data: Any = (), file: Any = None) -> None:
        """Whatever it is."""

    def waiting(self, seconds: float) -> bool:
        return True

    def receive(self) -> tuple[Any, Any]:
        message = next(self._messages)
        return message, DATA if "batch" in message else None

    def give_back(self) -> None:
        self.given_back = True

    def discard(self) -> None:
        """It ends."""

    def lost(self, error: Exception) -> WorkerLost:
        assert not self.given_back
        return WorkerLost(str(error))


def reader(*messages: dict[str, Any]) -> IsolatedReader:
    made = IsolatedReader.__new__(IsolatedReader)
    made._silence_s = made._reading_s = 1.0
    made.pool = SimpleNamespace(lease=lambda seconds: Lease(*messages))  # type: ignore[assignment]
    return made


def test_what_an_honest_worker_says() -> None:
    layout = Layout(time="T")
    wide = [describe(pa.schema([("t", pa.int64()), ("x", pa.float64()), ("y", pa.string())])), "t"]
    read = reader(
        {"batch": NODE, "columns": COLUMNS},
        {"batch": NODE, "end": True, "settled": wide, "notes": {"time:ticks": "assumed"}},
    )
    assert list(read.events(b"", "csv", layout=layout)) == [ROWS, ROWS]
    assert (layout.time, layout.schema().names) == ("t", ["t", "x", "y"])
    assert layout.notes == {"time:ticks": "assumed"}
    told = reader({"look": LOOK, "columns": COLUMNS[0], "batch": NODE, "end": True})
    assert told.look(b"", "csv").rows == ROWS


@pytest.mark.parametrize(
    "message",
    [
        {"batch": NODE},
        {"batch": NODE, "columns": COLUMNS[0]},
        {"batch": NODE, "columns": [COLUMNS[0], 5]},
        {"batch": NODE, "columns": [[["t", "int64"]], "t"]},
        {"batch": NODE, "columns": [describe(pa.schema([("t", pa.string())])), "t"]},
        {"batch": NODE, "columns": COLUMNS, "notes": ["a"]},
        {"batch": NODE, "columns": COLUMNS, "notes": {"a": 5}},
        {"batch": NODE, "columns": COLUMNS, "settled": 7},
        {"columns": COLUMNS},
        {"bad": [{"row": "x"}]},
    ],
)
def test_what_no_honest_worker_says(message: dict[str, Any]) -> None:
    with pytest.raises(WorkerLost):
        list(reader(message).events(b"", "csv", layout=Layout(time="t")))


def test_a_worker_does_not_choose_the_columns_of_a_stream() -> None:
    schema = StreamSchema(pa.schema([pa.field("t", pa.int64(), False), ("s", pa.string())]), "t")
    layout = Layout(target=schema)
    with pytest.raises(WorkerLost):  # its rows are not the stream's, whatever it says they are
        list(reader({"batch": NODE, "columns": COLUMNS}).events(b"", "csv", layout=layout))
    assert layout.schema() == schema.arrow


@pytest.mark.parametrize(
    "told",
    [
        None,
        {**LOOK, "rows": 1},
        {**LOOK, "format": None},
        {**LOOK, "bad": "0"},
        {**LOOK, "notes": [5]},
        {**LOOK, "notes": 5},
        {**LOOK, "examples": [{"row": 1}]},
        {**LOOK, "examples": 5},
        {"format": "csv"},
    ],
)
def test_what_no_honest_worker_sees(told: Any) -> None:
    message = {"look": told, "columns": COLUMNS[0], "batch": NODE, "end": True}
    with pytest.raises(WorkerLost):
        reader(message).look(b"", "csv")


def test_a_look_is_one_message() -> None:
    message = {"look": LOOK, "columns": COLUMNS[0], "batch": NODE}
    with pytest.raises(WorkerLost):
        reader(message, {**message, "end": True}).look(b"", "csv")
