"""The table of docs/values.md through Flight SQL: types in by loads and parameters, and out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("grpc", reason="the extra flight is not installed")
pytest.importorskip("adbc_driver_flightsql", reason="no driver of ADBC is installed")

import adbc_driver_manager as manager

from .test_flight_sql import connect  # noqa: F401
from .test_values import (
    KINDS,
    QUERY,
    CannotSay,
    Place,
    natural,
    text_of,
    wanted_of,
)


def load(cursor: Any, place: Place, texts: list[str]) -> None:
    cursor.adbc_ingest("s", natural(place, texts), mode="append")


def insert(cursor: Any, place: Place, texts: list[str]) -> None:
    table = natural(place, texts)
    if texts == ["1.5"]:
        raise CannotSay  # SQL rounds numbers to whole ones
    if pa.types.is_timestamp(place.kind.type) and place.kind.type.unit == "ns":
        table = table.set_column(1, "x", pa.array(texts))  # parameters are times of microseconds
    (batch,) = table.combine_chunks().to_batches()
    cursor.executemany("INSERT INTO s VALUES (?, ?)", batch)


@pytest.mark.parametrize("name", KINDS)
def test_values_pass_flight_sql(name: str, database: Any, connect: Any) -> None:  # noqa: F811
    kind = KINDS[name]
    database.sql(f"CREATE STREAM s (t BIGINT, x {name}) TIMESTAMP BY t")
    place = Place(database, None, database.path, kind)
    problems: list[Any] = []
    with connect(database).cursor() as cursor:
        for give in (load, insert):
            try:
                give(cursor, place, list(kind.holds))
            except manager.Error as error:
                problems.append((give.__name__, "refused", str(error)[:300]))
            else:
                cursor.execute(QUERY)
                found = [text_of(kind, x) for x in cursor.fetch_arrow_table()["x"]]
                if found != wanted_of(kind):
                    problems.append((give.__name__, "out", found))
            if database.stream("s").count:
                database.stream("s").delete(None)
            for text in kind.refuses:
                try:
                    give(cursor, place, [text])
                    problems.append((give.__name__, "kept", text, place.stream.count))
                except (manager.Error, CannotSay):
                    pass
                if database.stream("s").count:
                    database.stream("s").delete(None)
    assert not problems, "\n".join(map(str, problems))


def test_parameters_beyond_the_years_are_named(database: Any, connect: Any) -> None:  # noqa: F811
    database.sql("CREATE STREAM s (t TIMESTAMP) TIMESTAMP BY t")
    far = pa.array([2**63 - 1], pa.int64()).cast(pa.timestamp("us"))
    with (
        connect(database).cursor() as cursor,
        pytest.raises(manager.Error, match="years 1 to 9999"),
    ):
        cursor.execute("SELECT * FROM s WHERE t < ?", pa.record_batch([far], names=["t"]))
