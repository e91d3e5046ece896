"""The relational executor: DuckDB behind a door, over our relations alone.

Reading order: ``scans`` and ``datasets`` (what it reads), ``door`` (what it may be asked),
``error_position``, ``interface`` (what the engine asks of it), ``evaluation`` (expressions beside
any query), ``executor`` (in this process), ``sql_worker`` and ``isolated`` (in others).
"""
