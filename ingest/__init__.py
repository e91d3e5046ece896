"""Files into streams: what ``chronicle ingest`` does, as a library.

::

    from chronicle.ingest import IngestRequest, Target, ingest

    report = ingest(
        IngestRequest(["data/*.csv.gz"], stream="pumps", time="when", create=True),
        Target(path="chronicle-data"),
    )
    print(report.stored, report.bad)

Reading order: ``request`` (what is asked), ``quarantine`` (rows that cannot be read), ``report``
(what was done), ``external_sort``, ``sink`` (where events go) with ``store_sink`` and
``server_sink``, ``target`` (which of them), ``pipeline`` (read, check, sort, store), ``engines``
(who does it).
"""

from __future__ import annotations

from .engines import choose_engine, ingest
from .pipeline import Ingest, SourceReader
from .quarantine import BadRows
from .report import IngestReport, Progress
from .request import IngestRequest, InputSource, expand
from .sink import Sink
from .target import Target

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
    "choose_engine",
    "expand",
    "ingest",
]
