"""The relational executor: DuckDB, restricted to our relations.

Reading order: ``scans`` (inputs), ``datasets``, ``admission`` (what may be run), ``interface`` (of
the engine, expressions outside of queries), ``executor`` (in process), ``sql_worker`` and
``isolated`` (in workers).
"""
