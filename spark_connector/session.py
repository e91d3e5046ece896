"""The Spark session of the ingest pipeline: the active one, or a new one.

With local masters, executors run this process's interpreter, else ``PYSPARK_PYTHON`` with
Chronicle.  Output of the JVM goes to a log file, removed after success.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import errors
from ..errors import ChronicleError, IngestError, MissingDependency

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Limited by rows only: with a byte limit Spark measures the batch after every row, which takes
    # longer than sending it.  The number of rows is about Spark's default.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


_OURS = re.compile(r"^(?:\w+\.)*chronicle\.errors\.(\w+): (.*)$", re.MULTILINE)


@contextlib.contextmanager
def pipeline_session(master: str | None, name: str) -> Iterator[Any]:
    """The active session, else a new one for the block (``local[*]`` by default).

    Raises MissingDependency without Java, IngestError if Spark fails; an executor's ChronicleError
    is raised as such.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise MissingDependency(
            "Spark needs Java 17 or newer: install a JRE (Debian: openjdk-17-jre-headless) or set "
            "JAVA_HOME; --engine arrow needs none"
        )
    with _log() as log, _quiet_py4j(), _explained(log):
        session = _started(_settings(master, name), log)
        try:
            yield session
        finally:
            session.stop()


def _settings(master: str | None, name: str) -> dict[str, str]:
    settings = {**SETTINGS, "spark.app.name": name}
    if master is not None:
        settings["spark.master"] = master
    if master is None or master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings["spark.ui.enabled"] = "false"
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        if "SPARK_DRIVER_MEMORY" not in os.environ:
            settings["spark.driver.memory"] = "2g"
    return settings


def _started(settings: Mapping[str, str], log: Path) -> Any:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = SparkConf()
    conf.setAll(list(settings.items()))
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        with log.open("ab") as file, _uninterrupted():
            gateway = launch_gateway(conf, {"stderr": file})
        SparkContext(conf=conf, gateway=gateway)
    return SparkSession.builder.config(conf=conf).getOrCreate()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defer an interrupt to the block's end: a JVM whose launch PySpark abandons never exits."""
    waiting: list[int] = []
    here = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if here else signal.SIG_IGN
    if before is signal.SIG_IGN or before is None:
        yield
        return
    signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if waiting:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _log() -> Iterator[Path]:
    handle, name = tempfile.mkstemp(prefix="chronicle-spark-", suffix=".log")
    os.close(handle)
    path = Path(name)
    keep = False
    try:
        yield path
    except IngestError:
        keep = path.stat().st_size > 0
        raise
    finally:
        if not keep:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _quiet_py4j() -> Iterator[None]:
    logger, root = logging.getLogger("py4j"), logging.getLogger()
    before = logger.level

    def of_others(record: logging.LogRecord) -> bool:
        return f"{os.sep}py4j{os.sep}" not in record.pathname

    logger.setLevel(logging.CRITICAL + 1)
    root.addFilter(of_others)  # interrupts are logged by the root logger
    try:
        yield
    finally:
        logger.setLevel(before)
        root.removeFilter(of_others)


@contextlib.contextmanager
def _explained(log: Path) -> Iterator[None]:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise _ours(str(error), log) from None


def _ours(text: str, log: Path) -> ChronicleError:
    match = _OURS.search(text)
    if match is not None:
        kind = getattr(errors, match[1], None)
        if isinstance(kind, type) and issubclass(kind, ChronicleError):
            with contextlib.suppress(TypeError):
                ours: ChronicleError = kind(match[2])
                return ours
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    message = next((line for line in lines if "Exception" in line or "Error" in line), "")
    if "stopped SparkContext" in text or "masters are unresponsive" in text:
        message = (
            "its application was stopped; if --master names a cluster, see that a master runs at "
            "that address and has workers"
        )
    return IngestError(
        f"Spark gave up: {(message or (lines or ['no reason given'])[0])[:500]}; nothing of the "
        f"chunk at hand is stored, its log is {log}"
    )
