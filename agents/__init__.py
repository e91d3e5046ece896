"""For language models: a database as tools of the Model Context Protocol, by any transport.

Reading order: ``tools``.  ``chronicle mcp`` serves them on standard input and output, a server at
``/mcp``; ``docs/decisions/0027-mcp.md`` has the reasons.
"""
