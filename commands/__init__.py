"""The commands of ``chronicle``, one module per group, each a thin layer over the library.

Modules of the database are imported inside the commands, so that ``--help`` stays fast.

Reading order::

    shared            options (and the store or server)  terminal (messages, bars)
    answers           output (formats, files)
    statements        session (scripts, files)  sql (also the prompt)
    ingest            ingest  start (chronicle without a command)
    following         live (also chronicle tail)
    notebooks         notebook
    of a server       serving (also chronicle token, job, mcp)
    other commands    streams  upkeep (also objects)  demonstrate (also its events)
"""
