"""The Spark connector: batch and streaming reads and writes of ``format("chronicle")``.

Spark finds the format through the installed top-level package ``pyspark_chronicle``; ``register``
does the same by hand.

Reading order::

    options           options  types  source
    backends          backend  task_metrics  local  server_backend  opening  view_reading
    batch reads       pushdown  reader  measuring
    queries           pinned_catalog  queries  query_reader  query_plan
    writes            overwriting  writer  loading
    streaming         following  stream_reader  stream_writer
    ingest            session  inputs  parsing  pipeline
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register the format ``chronicle`` with a session."""
    from .source import DefaultSource

    spark.dataSource.register(DefaultSource)
