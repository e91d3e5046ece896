"""The commands of ``chronicle``: one module a group, each a thin face over the library.

Reading order::

    shared            options (what commands have in common)  terminal (what people see)
                      connection (the store or server they talk to)
    answers           tables  plotting  plots  output
    statements        sql_script  files  session  line_editing  prompt  sql
    events in         ingest
    that go on        tail  live
    notebooks         notebook
    for agents        mcp
    of a server       tokens  jobs  serving
    other commands    streams  upkeep  objects  calibrate  demonstrate  factory (its events)

Modules of the database are imported inside the commands, so that ``--help`` stays quick.
"""
