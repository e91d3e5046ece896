"""Times at the ends of 64 bits within lists, structs and maps come out as they are, or an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.core.times import INT64_MAX, INT64_MIN, time_of, time_text
from chronicle.errors import InvalidArgument
from chronicle.formats.writers import encode
from chronicle.query.contract.result import Result

ENDS = (INT64_MIN, INT64_MIN + 1, -1, 0, INT64_MAX - 1, INT64_MAX)
UNITS = ("s", "ms", "us", "ns")
SHAPES = {
    "[t]": lambda t: [t],
    "{'a': t}": lambda t: {"a": t},
    "MAP {t: t}": lambda t: [(t, t)],
    "[{'a': [t]}]": lambda t: [{"a": [t]}],
}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chronicle.open(tmp_path_factory.mktemp("within") / "s") as made:
        for unit in UNITS:
            schema = pa.schema([("n", pa.int64()), ("t", pa.timestamp(unit))])
            times = pa.array(ENDS).cast(pa.timestamp(unit))
            made.create_stream(unit, schema, time="n").append(pa.table([range(6), times], schema))
        yield made


def result(db: Any, shape: str, unit: str) -> Result:
    found: Result = db.sql(f"SELECT {shape} AS v FROM {unit} ORDER BY n")
    return found


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shape", SHAPES)
def test_python_and_json_have_every_tick(db: Any, shape: str, unit: str) -> None:
    type_ = pa.timestamp(unit)
    wanted = [SHAPES[shape](time_of(tick, type_)) for tick in ENDS]
    assert [v for (v,) in result(db, shape, unit).fetchall()] == wanted
    table = result(db, shape, unit).arrow()
    lines = b"".join(encode(table.to_batches(), table.schema, "ndjson")).splitlines()
    texts = [SHAPES[shape](time_text(tick, type_, "T")) for tick in ENDS]
    found = [json.loads(line.replace(b".999000", b".999"))["v"] for line in lines]
    assert found == json.loads(json.dumps(texts))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shape", ["t", *SHAPES])
def test_frames_pages_and_files_have_every_tick_or_say_so(db: Any, shape: str, unit: str) -> None:
    table = result(db, shape, unit).arrow()
    assert pa.array(result(db, shape, unit).df()["v"]).cast(table.schema.field(0).type) == (
        table["v"].combine_chunks()
    )
    assert result(db, shape, unit)._repr_html_().count("<tr>") == len(ENDS) + 1
    assert b"".join(encode(table.to_batches(), table.schema, "csv"))
    if unit == "s":
        with pytest.raises(InvalidArgument, match="milliseconds"):
            list(encode(table.to_batches(), table.schema, "parquet"))
    else:
        assert b"".join(encode(table.to_batches(), table.schema, "parquet"))


@pytest.mark.parametrize("shape", ["row()", "[row()]", "{'b': row()}"])
def test_structs_without_members_are_written(db: Any, shape: str) -> None:
    table = result(db, shape, "us").arrow()
    lines = b"".join(encode(table.to_batches(), table.schema, "ndjson")).splitlines()
    wanted = json.loads(shape.replace("row()", "{}").replace("'", '"'))
    assert [json.loads(line)["v"] for line in lines] == [wanted] * len(ENDS)
    assert b"".join(encode(table.to_batches(), table.schema, "csv"))
    with pytest.raises(InvalidArgument, match="no child"):
        list(encode(table.to_batches(), table.schema, "parquet"))
