"""Files into streams: what ``chronicle ingest`` does, as a library.

::

    from chronicle.ingest import IngestRequest, Target, ingest

    report = ingest(
        IngestRequest(["data/*.csv.gz"], stream="pumps", time="when", create=True),
        Target(path="chronicle-data"),
    )
    print(report.stored, report.bad)

Reading order: ``request.py`` (what is asked), ``pipeline.py`` (read, check, sort, store),
``spool.py`` (the sort), ``sinks.py`` (where events go), ``engines.py`` (who does
it).
"""

from __future__ import annotations

from .engines import Target, choose_engine, ingest
from .pipeline import Ingest
from .quarantine import BadRows
from .report import IngestReport, Progress
from .request import IngestRequest, Source, expand
from .sinks import Sink

__all__ = [
    "BadRows",
    "Ingest",
    "IngestReport",
    "IngestRequest",
    "Progress",
    "Sink",
    "Source",
    "Target",
    "choose_engine",
    "expand",
    "ingest",
]
