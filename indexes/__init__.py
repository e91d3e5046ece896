"""Secondary indexes: the positions of attribute values in a stream's history.

Reading order
    ``storage`` (RocksDB database of a stream), ``kernels`` (loops over entries), ``keys`` (values
    as sortable integers), ``runs`` (sorted entries of a range of positions), ``derived_values``,
    ``looking_back`` and ``index_key`` (what an index is on), ``definitions`` (file of defined
    indexes), ``catalogue`` (existing runs), ``opened`` (reading them), ``lookup`` (values to
    positions), ``ahead`` (read-ahead of blocks), ``verify`` (runs against events), ``copying`` and
    ``staged`` (indexes of copies and of bulk loads), ``stream_indexes`` (building), ``manager``
    (indexes of all streams).
"""

from .manager import StoreIndexes
from .opened import Catalogue
from .stream_indexes import StreamIndexes

__all__ = ["Catalogue", "StoreIndexes", "StreamIndexes"]
