"""Secondary indexes: where in history an attribute has a rare value.

Reading order: ``storage`` (the RocksDB database of a stream), ``leaves`` (positions and times of a
segment), ``kernels``, ``keys`` (values as integers that sort alike), ``runs`` (entries of a range
of positions), ``lookup`` (values to positions), ``definitions`` (which attributes),
``opened`` (runs, and doing without), ``catalogue`` (one moment's picture), ``stream_indexes``
(what is built), ``staged`` and ``copying`` (indexes of segments elsewhere), ``verify`` (runs
against events),
``manager`` (the indexes of all streams).
"""

from .manager import StoreIndexes
from .stream_indexes import Catalogue, StreamIndexes

__all__ = ["Catalogue", "StoreIndexes", "StreamIndexes"]
