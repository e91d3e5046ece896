"""What Spark's filters exclude: never anything that satisfies them; no session needed."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from chronicle.schema import StreamSchema
from chronicle.store.prune import AnyOf, IsNull, Never, NotNull, Range

spark = pytest.importorskip("pyspark.sql.datasource", reason="pyspark is not installed")
pushdown = pytest.importorskip("chronicle.spark_connector.reader")
ScanRequest = pytest.importorskip("chronicle.spark_connector.backend").ScanRequest

UTC = dt.timezone.utc
SCHEMA = StreamSchema(
    pa.schema(
        [
            ("t", pa.timestamp("s", "UTC")),
            ("n", pa.int32()),
            ("x", pa.float64()),
            ("s", pa.string()),
            ("d", pa.date32()),
            ("u", pa.uint64()),
            ("m", pa.timestamp("ms")),
            ("p", pa.decimal128(10, 2)),
            ("f", pa.bool_()),
        ]
    ),
    "t",
)


def narrowed(item: Any, **scan: Any) -> Any:
    return pushdown.narrow(ScanRequest(("t",), **scan), item, SCHEMA)


def at(second: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(seconds=second)


@pytest.mark.parametrize(
    ("item", "start", "end"),
    [
        (spark.GreaterThanOrEqual(("t",), at(10)), 10, None),
        (spark.GreaterThan(("t",), at(10)), 11, None),
        (spark.GreaterThan(("t",), at(10.5)), 11, None),
        (spark.LessThan(("t",), at(10)), None, 10),
        (spark.LessThan(("t",), at(10.5)), None, 11),
        (spark.LessThanOrEqual(("T",), at(10)), None, 11),
        (spark.EqualTo(("t",), at(10)), 10, 11),
        (spark.In(("t",), [at(3), None, at(9)]), 3, 10),
        (spark.IsNotNull(("t",)), None, None),
        (spark.GreaterThan(("t",), at(-0.5)), 0, None),
        (spark.EqualNullSafe(("t",), None), None, None),
    ],
)
def test_time_becomes_a_range_of_ticks(item: Any, start: int | None, end: int | None) -> None:
    scan = narrowed(item)
    assert (scan.start, scan.end, scan.prune) == (start, end, None)


def test_time_ranges_meet() -> None:
    scan = narrowed(spark.GreaterThan(("t",), at(10)), start=20, end=30)
    assert (scan.start, scan.end) == (20, 30)
    scan = narrowed(spark.LessThan(("t",), at(25)), start=20, end=30)
    assert (scan.start, scan.end) == (20, 25)


@pytest.mark.parametrize(
    ("item", "prune"),
    [
        (spark.EqualTo(("n",), 7), Range("n", 7, 7)),
        (spark.LessThan(("x",), 1), Range("x", None, 1.0, high_open=True)),
        (spark.GreaterThan(("x",), math.inf), Range("x", math.inf, None, low_open=True)),
        (spark.GreaterThan(("x",), math.nan), Never()),
        (spark.EqualTo(("x",), math.nan), Range("x", math.nan, None)),
        (spark.EqualNullSafe(("x",), None), None),
        (spark.In(("n",), [1, None, 5]), AnyOf((Range("n", 1, 1), Range("n", 5, 5)))),
        (
            spark.In(("x",), [1.0, math.nan]),
            AnyOf((Range("x", 1.0, 1.0), Range("x", math.nan, None))),
        ),
        (spark.IsNull(("s",)), IsNull("s")),
        (spark.IsNotNull(("s",)), NotNull("s")),
        (spark.StringStartsWith(("s",), "ab"), Range("s", "ab", "ac", high_open=True)),
        (
            spark.StringStartsWith(("s",), "a\U0010ffff"),
            Range("s", "a\U0010ffff"),
        ),
        (spark.StringStartsWith(("s",), "\U0010ffff"), Range("s", "\U0010ffff")),
        (spark.StringStartsWith(("s",), "\ud7ff"), Range("s", "\ud7ff")),
        (spark.StringEndsWith(("s",), "ab"), None),
        (spark.EqualTo(("d",), dt.date(1970, 1, 3)), Range("d", 2, 2)),
        (spark.LessThan(("u",), Decimal("7.5")), Range("u", None, 7)),
        (spark.GreaterThan(("m",), dt.datetime(1970, 1, 1, 0, 0, 0, 1500)), Range("m", 2, None)),
        (spark.EqualTo(("p",), Decimal("1.00")), NotNull("p")),
        (spark.EqualTo(("f",), True), Range("f", True, True)),
        (spark.Not(spark.EqualTo(("n",), 7)), None),
        (spark.EqualTo(("s",), "x"), Range("s", "x", "x")),
    ],
)
def test_other_columns_become_bounds(item: Any, prune: Any) -> None:
    assert narrowed(item).prune == prune


def test_a_limit_is_taken_before_sparks_filter() -> None:
    assert narrowed(spark.EqualTo(("n",), 7), limit=3) == ScanRequest(("t",), limit=3)
