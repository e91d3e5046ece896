"""The commands of ``chronicle``, one module per group, each a thin layer over the library.

Modules of the database are imported inside the commands, so that ``--help`` stays fast.

Reading order::

    shared            options (shared options)  terminal (messages, bars)
                      connection (the store or server)
    answers           tables  plotting  plots  output
    statements        sql_script  files  session  line_editing  prompt  sql
    ingest            ingest
    following         tail  live
    notebooks         notebook
    language models   mcp
    of a server       tokens  jobs  serving
    other commands    streams  upkeep  objects  calibrate  demonstrate  factory (its events)
"""
