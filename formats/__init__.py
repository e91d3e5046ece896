"""External formats: JSON, NDJSON, CSV, line protocol, Arrow and Parquet, compressed or not.

``EventReader`` reads with a ``Layout``, ``encode`` writes.  The package depends on neither store
nor server.

Reading order::

    names, options    kinds (formats, column types)  dialect (options, limits)
    bytes             sources
    records           chunks  jsonscan  jsontext  lineprotocol  csvtext  columnar (Arrow, Parquet)
    values            decimals  times  convert
    Python objects    tables
    events            layout  reader
    in a worker       decoder  isolated
    output            writers  text_tables  plots
"""
