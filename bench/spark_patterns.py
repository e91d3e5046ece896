"""A pattern query through the Spark connector, against Spark's own formulations, with equal rows.

Spark has no MATCH_RECOGNIZE: a pattern of three neighbouring events is written over Parquet with
window functions (``lead`` over time buckets that overlap) and as a join (rare first events,
broadcast, with all events of their second and the next).  A replay shows how time ranges scale over
processors.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..api.database import open_database
from ..schema import StreamSchema
from .harness import Row

RARE = 0.99999
REACH_US = 1_000_000
BUCKETS = 64
ROUNDS = 5
ROUNDS_THEIRS = 2
PARTS = 8

CLAUSE = f"""MATCH_RECOGNIZE (ORDER BY t
  MEASURES A.id AS first_id, A.t AS began, C.id AS last_id, B.b + C.c AS weight
  AFTER MATCH SKIP TO NEXT ROW PATTERN (A B C) WITHIN INTERVAL '1' SECOND
  DEFINE A AS a > {RARE}, B AS b > 0.5, C AS c > B.b)"""
SELECTIVE = f"SELECT first_id, began, last_id, weight FROM p {CLAUSE}"
REPLAYED = f"SELECT /*+ strategy(replay) */ first_id, began, last_id, weight FROM p {CLAUSE}"
COLUMNS = ("first_id", "began", "last_id", "weight")


class PatternBench:
    """One indexed stream and the same events as Parquet."""

    def __init__(
        self, place: Path, schema: StreamSchema, batches: Iterator[pa.RecordBatch], events: int
    ) -> None:
        self.events = events
        self.store, self.parquet = place / "patterns", place / "patterns.parquet"
        with (
            open_database(self.store) as database,
            pq.ParquetWriter(self.parquet, schema.arrow) as writer,
        ):
            stream = database.create_stream("p", schema)
            for batch in batches:
                stream.append(batch, durability="none")
                writer.write_batch(batch)
            stream.seal()
            database["p"].create_index("a")

    # -- formulations -------------------------------------------------------------------------

    def ours(self, spark: Any, text: str, **options: object) -> Any:
        reader = spark.read.format("chronicle").option("path", str(self.store))
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.option("query", text).load()

    def windowed(self, spark: Any) -> Any:
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        events = spark.read.parquet(str(self.parquet)).select("t", "id", "a", "b", "c")
        ticks = F.unix_micros("t")
        span = events.agg(F.min(ticks), F.max(ticks)).first()
        width = max(2 * REACH_US, (span[1] - span[0]) // BUCKETS + 1)
        events = events.withColumn("bucket", F.floor((ticks - span[0]) / width))
        early = F.pmod(ticks - span[0], F.lit(width)) <= REACH_US
        again = events.where(early).withColumn("bucket", F.col("bucket") - 1)
        both = events.withColumn("own", F.lit(True)).union(again.withColumn("own", F.lit(False)))
        return self._followed(both, Window.partitionBy("bucket").orderBy("t")).where("own")

    def joined(self, spark: Any) -> Any:
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        events = spark.read.parquet(str(self.parquet)).select("t", "id", "a", "b", "c")
        second = F.floor(F.unix_micros("t") / REACH_US)
        rare = events.where(F.col("a") > RARE).select(F.col("t").alias("origin"), second.alias("s"))
        rare = rare.withColumn("s", F.explode(F.array("s", F.col("s") + 1)))
        near = events.withColumn("s", second).join(F.broadcast(rare), "s")
        near = near.where(F.col("t") >= F.col("origin"))
        window = Window.partitionBy("origin").orderBy("t")
        return self._followed(near, window, own="t = origin").where("own")

    @staticmethod
    def _followed(events: Any, window: Any, own: str = "own") -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        wide = events.select(
            F.col("id").alias("first_id"), F.col("t").alias("began"), "a", F.expr(own).alias("own"),
            F.lead("b", 1).over(window).alias("b1"), F.lead("c", 2).over(window).alias("c2"),
            F.lead("id", 2).over(window).alias("last_id"),
            F.lead("t", 2).over(window).alias("ended"),
        )  # fmt: skip
        reached = F.unix_micros("ended") - F.unix_micros("began") <= REACH_US
        found = wide.where((F.col("a") > RARE) & (F.col("b1") > 0.5) & (F.col("c2") > F.col("b1")))
        return found.where(reached).withColumn("weight", F.col("b1") + F.col("c2"))

    # -- measuring ----------------------------------------------------------------------------

    def compare(self, spark: Any) -> list[Row]:
        mine = self._rows(self.ours(spark, SELECTIVE))
        seconds = _median(lambda: self._rows(self.ours(spark, SELECTIVE)), ROUNDS)
        rows = []
        for what, other, bar in (
            ("window functions", self.windowed, 20.0),
            ("a broadcast join of the rare events", self.joined, None),
        ):
            times = []
            for _ in range(ROUNDS_THEIRS):
                began = time.perf_counter()
                found = self._rows(other(spark))
                times.append(time.perf_counter() - began)
                if found != mine:
                    raise AssertionError(f"{other.__name__}: other rows than MATCH_RECOGNIZE")
            theirs = min(times)
            rows.append(
                Row(
                    f"pattern of {len(mine)} matches in {self.events / 1e6:g} M events, "
                    f"against Spark by {what} over Parquet",
                    f"{seconds * 1000:.0f} ms",
                    f"{theirs * 1000:.0f} ms",
                    f"{theirs / seconds:.1f}",
                    "" if bar is None else f"≥ {bar:g}",
                    None if bar is None else theirs / seconds >= bar,
                )
            )
        return rows

    def replay(self, spark: Any) -> float:
        df = self.ours(spark, REPLAYED, numPartitions=PARTS)
        parts = df.rdd.getNumPartitions()
        if parts < PARTS // 2:
            raise AssertionError(f"the replay ran in {parts} parts, expected {PARTS}")
        self._rows(df)
        return _median(lambda: self._rows(df), ROUNDS)

    @staticmethod
    def _rows(df: Any) -> list[Any]:
        return sorted(tuple(row) for row in df.select(*COLUMNS).collect())


def _median(measure: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        measure()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def scaling_row(events: int, one: float, two: float) -> Row:
    return Row(
        f"replay of {events / 1e6:g} M events in {PARTS} time ranges: local[2] against local[1]",
        f"{events / two / 1e6:.1f} M/s",
        f"{events / one / 1e6:.1f} M/s",
        f"{one / two:.2f}",
        "≥ 1.6",
        one / two >= 1.6,
    )
