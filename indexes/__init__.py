"""Secondary indexes: where in history an attribute has a rare value.

Reading order: ``storage`` (the RocksDB database of a stream), ``kernels``, ``keys`` (values as
integers that sort alike), ``runs`` (entries of a range of positions), ``derived_values``,
``looking_back`` and ``index_key`` (what an index is on),
``definitions`` (the file that says what is indexed),
``catalogue`` (the runs that there are), ``opened`` (reading them),
``lookup`` (values to positions), ``ahead`` (blocks of many runs together),
``verify`` (runs against events), ``copying`` and ``staged`` (indexes of segments elsewhere),
``stream_indexes`` (what is built), ``manager`` (the indexes of all streams).
"""

from .manager import StoreIndexes
from .stream_indexes import Catalogue, StreamIndexes

__all__ = ["Catalogue", "StoreIndexes", "StreamIndexes"]
