"""Files into streams: what ``chronicle ingest`` does, as a library.

::

    from chronicle.ingest import IngestRequest, Target, ingest

    report = ingest(
        IngestRequest(["data/*.csv.gz"], stream="pumps", time="when", create=True),
        Target(path="chronicle-data"),
    )
    print(report.stored, report.bad)

Reading order: ``request`` (what is asked), ``quarantine`` (rows that cannot be read), ``spool``
(the sort), ``report`` (what was done), ``sinks`` (where events go), ``pipeline`` (read, check,
sort, store), ``engines`` (who does it).
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
