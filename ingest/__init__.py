"""Files into streams: ``chronicle ingest`` as a library.

::

    from chronicle.ingest import IngestRequest, Target, ingest

    report = ingest(
        IngestRequest(["data/*.csv.gz"], stream="pumps", time="when", create=True),
        Target(path="chronicle-data"),
    )

Reading order: ``request`` (options, counters, bad rows), ``sinks`` (bulk loads, the target),
``pipeline`` (chooses the engine; read, check, sort, store), ``tables`` (tables of a program).
"""

from __future__ import annotations

from .pipeline import Ingest, SourceReader, TimeUnnamed, choose_engine, ingest
from .request import BadRows, IngestReport, IngestRequest, InputSource, Progress, expand
from .sinks import Sink, Target

__all__ = [
    "BadRows",
    "Ingest",
    "IngestReport",
    "IngestRequest",
    "InputSource",
    "Progress",
    "Sink",
    "SourceReader",
    "Target",
    "TimeUnnamed",
    "choose_engine",
    "expand",
    "ingest",
]
