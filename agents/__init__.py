"""Tools for language models over the Model Context Protocol.

Reading order: ``tools``.  ``chronicle mcp`` serves them on standard input and output, a server at
``/mcp``; see ``docs/decisions/0027-mcp.md``.
"""
