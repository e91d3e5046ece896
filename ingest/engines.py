"""Entry to the ingest engines ``arrow`` (this process) and ``spark`` (executors).

``auto`` is ``spark`` if a master is given and the inputs have ``SPARK_BYTES_MIN`` or more.
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
"""Below this, starting a Spark session takes longer than reading the input in one process."""


def choose_engine(request: IngestRequest) -> str:
    if request.engine != "auto":
        return request.engine
    if request.master is None:
        return "arrow"
    size = _known_bytes(request.inputs)
    return "arrow" if size is not None and size < SPARK_BYTES_MIN else "spark"


def _known_bytes(inputs: Sequence[str]) -> int | None:
    if any(item == "-" or "://" in item for item in inputs):
        return None
    try:
        sizes = [source.size for source in expand(inputs)]
    except InvalidArgument:
        return None  # the engine reports it
    return None if None in sizes else sum(size for size in sizes if size is not None)


def ingest(
    request: IngestRequest, target: Target, progress: Progress | None = None
) -> IngestReport:
    """Ingest files into a stream.

    A ChronicleError has a note on what is in the store; InvalidData names the row at fault.
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
