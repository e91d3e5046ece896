"""External formats: JSON, NDJSON, CSV, line protocol, Arrow and Parquet, compressed or not.

``EventReader`` reads with a ``Layout``, ``encode`` writes.  The package depends on neither store
nor server.

Reading order::

    names             kinds (formats, column types)
    bytes             limits  sources  archives (decompression)
    records           dialect  chunks  jsonscan  jsontext  lineprotocol  csvtext
    values            decimals  time_text  time_rules  times  convert  time_parts
    Python objects    tables
    typed files       columnar (Arrow, Parquet)
    events            infer  layout  reader  looking (preview)
    in a worker       decoder  isolated
    output            writers
"""
