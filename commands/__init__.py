"""The commands of ``chronicle``: one module a group, each a thin face over the library.

Reading order::

    shared            options (what commands have in common)  screen (what people see)
                      place (the store or server they talk to)
    answers           tables  plotting  plots  answers
    statements        statements  sql  prompt
    events in         served  ingest
    other commands    streams  upkeep  serving  calibrate  demonstrate

Modules of the database are imported inside the commands, so that ``--help`` stays quick.
"""
