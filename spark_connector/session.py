"""A Spark session for the ingest pipeline, when there is none yet.

Purpose
    :func:`pipeline_session` gives the session that is active, or makes one with settings that suit
    the pipeline.  Under spark-submit the session is the submitter's business.

Guarantee
    Executors run the interpreter of this process where that is possible (local masters): a worker
    that starts another ``python3`` without Chronicle fails with little to go by.

Limits
    For a remote master the executors' interpreter comes from ``PYSPARK_PYTHON``, which must have
    Chronicle installed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

from ..errors import MissingDependency

__all__ = ["pipeline_session"]

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


@contextlib.contextmanager
def pipeline_session(master: str | None, name: str) -> Iterator[Any]:
    """The active session, else one for the length of the block.

    Parameters
    ----------
    master : str, optional
        ``local[*]`` unless given or set by spark-submit.
    name : str
        Of the application.

    Raises
    ------
    MissingDependency
        When there is no Java.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise MissingDependency(
            "--engine spark needs Java 17 or newer: install a JRE or set JAVA_HOME; --engine arrow "
            "needs none"
        )
    local = master is None or master.startswith("local")
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    if local:
        builder = (
            builder.config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
        )
        if "SPARK_DRIVER_MEMORY" not in os.environ:
            builder = builder.config("spark.driver.memory", "2g")
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
