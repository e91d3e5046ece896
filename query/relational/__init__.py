"""The relational executor: DuckDB behind a door, over our relations alone.

Reading order: ``door`` (what it may be asked), ``evaluation`` (expressions beside any query),
``scans``, ``datasets`` (what it reads), ``error_position``, ``executor``.
"""
