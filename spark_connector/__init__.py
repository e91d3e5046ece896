"""The Spark connector: batch and streaming reads and writes of ``format("chronicle")``.

Spark finds the format through the installed top-level package ``pyspark_chronicle``; ``register``
does the same by hand.

Reading order::

    options        options  types  source
    batch reads    backend (a path, a server)  reader (streams, queries, views; pushdown)
    queries        queries (pinned streams, parts)
    writes         writer (batch, overwrite, streaming, by the driver)
    streaming      stream_reader
    ingest         session  inputs (pieces, parsing)  pipeline
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
