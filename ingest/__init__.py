"""Files into streams: ``chronicle ingest`` as a library.

::

    from chronicle.ingest import IngestRequest, Target, ingest

    report = ingest(
        IngestRequest(["data/*.csv.gz"], stream="pumps", time="when", create=True),
        Target(path="chronicle-data"),
    )

Reading order: ``request`` (options), ``report`` (counters, bad rows), ``sink``
(bulk loads) with ``store_sink`` and ``server_sink``, ``target`` (chooses the sink),
``pipeline`` (chooses the engine; read, check, sort, store).
"""

from __future__ import annotations

from .pipeline import Ingest, SourceReader, choose_engine, ingest
from .report import BadRows, IngestReport, Progress
from .request import IngestRequest, InputSource, expand
from .target import Sink, Target

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
