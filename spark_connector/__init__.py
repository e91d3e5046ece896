"""The Spark connector: ``spark.read.format("chronicle")`` and its three siblings.

Spark finds the format by itself through the top-level package ``pyspark_chronicle`` that is
installed with Chronicle; :func:`register` does the same by hand where that search does not work.

Reading order::

    what is asked     options  types  source
    where it lies     backend  task_metrics  local  server_backend  opening  view_reading
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
    """Make the format ``chronicle`` known to a session."""
    from .source import DefaultSource

    spark.dataSource.register(DefaultSource)
