"""Which engine ingests, and the one entry to all of them.

Purpose
    :func:`ingest` is what the command line and programs call.  It decides between the engines and
    gives each the same three things: the request, the target, and who is told about progress.

Layout
    ==========  =======================================  =====================================
    engine      runs in                                  entry
    ==========  =======================================  =====================================
    ``arrow``   this process                             :class:`chronicle.ingest.pipeline.Ingest`
    ``spark``   executors; this process commits          ``chronicle.spark_connector.pipeline``:
                                                         ``run(request, target, progress)``
    ==========  =======================================  =====================================

    ``auto`` is ``spark`` when a master is given and the inputs have :data:`SPARK_BYTES_MIN` or
    more, else ``arrow``.

Limits
    The Spark engine needs PySpark and Java; without them a request for it is an error that says so.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence

from ..errors import InvalidArgument, MissingDependency
from .pipeline import Ingest
from .quarantine import BadRows
from .report import IngestReport, Progress
from .request import IngestRequest, expand
from .target import Target

__all__ = ["choose_engine", "ingest"]

SPARK_ENGINE = "chronicle.spark_connector.pipeline"


SPARK_BYTES_MIN = 64 << 20
"""With a master given, ``auto`` still takes ``arrow`` for less input than this: starting Spark's
session and its workers costs longer than reading that much in one process."""


def choose_engine(request: IngestRequest) -> str:
    """``arrow`` or ``spark``."""
    if request.engine != "auto":
        return request.engine
    if request.master is None:
        return "arrow"
    size = _known_bytes(request.inputs)
    return "arrow" if size is not None and size < SPARK_BYTES_MIN else "spark"


def _known_bytes(inputs: Sequence[str]) -> int | None:
    """Size of the inputs; None when not all of it is known here."""
    if any(item == "-" or "://" in item for item in inputs):
        return None
    try:
        sizes = [source.size for source in expand(inputs)]
    except InvalidArgument:
        return None  # said by the engine
    return None if None in sizes else sum(size for size in sizes if size is not None)


def ingest(
    request: IngestRequest, target: Target, progress: Progress | None = None
) -> IngestReport:
    """Ingest files into a stream.

    Raises
    ------
    ChronicleError
        With a note that says what is in the store; :class:`InvalidData` names the row at fault.
    """
    if choose_engine(request) == "spark":
        return _ingest_by_spark(request, target, progress)
    with target.opened(dry_run=request.dry_run) as opened:
        bad_rows = BadRows(request.on_error, target.quarantine_path(request))
        return Ingest(request, opened.sink(request.stream), bad_rows, progress).run()


def _ingest_by_spark(
    request: IngestRequest, target: Target, progress: Progress | None
) -> IngestReport:
    if importlib.util.find_spec("pyspark") is None:
        raise MissingDependency(
            "--engine spark needs PySpark: pip install 'chronicle-eventstore[spark]' (and Java 17 "
            "or newer)"
        )
    try:
        engine = importlib.import_module(SPARK_ENGINE)
    except ModuleNotFoundError as error:
        if error.name != SPARK_ENGINE:
            raise MissingDependency(f"--engine spark needs {error.name}: install it") from None
        raise MissingDependency("this build of Chronicle has no Spark engine") from None
    report: IngestReport = engine.run(request, target, progress)
    return report
