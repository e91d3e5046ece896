"""Chronicle: an event store that answers pattern and window queries from its indexes.

``chronicle.open(path)`` gives a :class:`~chronicle.database.Database`; streams of events go in through
:meth:`~chronicle.database.Stream.append`, answers come out through ``db.sql`` and ``stream.scan``.
Importing this package loads neither Spark nor a web framework.
"""

from __future__ import annotations

from .errors import ChronicleError

__all__ = ["ChronicleError", "__version__"]
__version__ = "0.1.0"
