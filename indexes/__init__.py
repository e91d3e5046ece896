"""Secondary indexes: the positions of attribute values in a stream's history.

Reading order
    ``storage`` (RocksDB database of a stream), ``keys`` (values as sortable integers, loops over
    entries), ``runs`` (sorted entries of a range of positions), ``derived_values`` and
    ``index_key`` (what an index is on), ``definitions`` (file of defined indexes), ``opened``
    (reading runs), ``lookup`` (values to positions), ``staged`` (indexes of bulk loads),
    ``stream_indexes`` (building, checking), ``manager`` (indexes of all streams).
"""
