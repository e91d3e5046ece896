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

import contextlib
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..database import Database, open_database
from ..errors import InvalidArgument, MissingDependency
from .pipeline import Ingest
from .quarantine import BadRows, quarantine_path
from .report import IngestReport, Progress
from .request import IngestRequest, expand
from .sinks import EmbeddedSink, Sink

__all__ = ["Target", "choose_engine", "ingest"]

SPARK_ENGINE = "chronicle.spark_connector.pipeline"


@dataclass(frozen=True)
class Target:
    """Where the events go: exactly one of a store's directory, an open database, a server.

    Attributes
    ----------
    path : path, optional
    database : Database, optional
        Opened for writing.
    url : str, optional
    token : str, optional
        For the server.
    """

    path: str | os.PathLike[str] | None = None
    database: Database | None = None
    url: str | None = None
    token: str | None = None

    def __post_init__(self) -> None:
        if sum(place is not None for place in (self.path, self.database, self.url)) != 1:
            raise InvalidArgument("give one target: a store's path, a database, or a url")

    def quarantine_path(self, request: IngestRequest) -> Path:
        """Where bad rows are kept."""
        if request.quarantine is not None:
            return request.quarantine
        if self.url is not None:
            return quarantine_path("chronicle", request.stream)
        place = self.database.path if self.database is not None else self.path
        assert place is not None
        return quarantine_path(place, request.stream)

    @contextlib.contextmanager
    def opened(self, *, read_only: bool = False) -> Iterator[Database | None]:
        """The database; None for a server, and for a store that a dry run need not make."""
        if self.database is not None:
            yield self.database
        elif self.path is None or (read_only and not os.path.exists(self.path)):
            yield None
        else:
            with open_database(self.path, "r" if read_only else "rw") as database:
                yield database


Connect = Callable[[Target, IngestRequest, IngestReport], Sink]


SPARK_BYTES_MIN = 64 << 20
"""With a master given, ``auto`` still takes ``arrow`` for less input than this: starting Spark's
session
and its workers costs longer than reading that much in one process."""


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
    request: IngestRequest,
    target: Target,
    progress: Progress | None = None,
    *,
    connect: Connect | None = None,
) -> IngestReport:
    """Ingest files into a stream.

    Parameters
    ----------
    request : IngestRequest
    target : Target
    progress : Progress, optional
    connect : callable, optional
        Makes the sink for a target with a url; this layer knows no HTTP
        (:class:`chronicle.commands.served.ServedSink` does).

    Returns
    -------
    IngestReport

    Raises
    ------
    ChronicleError
        With a note that says what is in the store; :class:`InvalidData` names the row at fault.
    """
    if choose_engine(request) == "spark":
        return _ingest_by_spark(request, target, progress)
    report = IngestReport(request.stream)
    with target.opened(read_only=request.dry_run) as database:
        sink: Sink
        if target.url is None:
            sink = EmbeddedSink(database, request, report)
        elif connect is not None:
            sink = connect(target, request, report)
        else:
            raise InvalidArgument("a target with a url needs connect=, which makes its sink")
        bad_rows = BadRows(request.on_error, target.quarantine_path(request))
        return Ingest(request, sink, bad_rows, progress).run()


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
