"""Queries: SQL text to results.

Reading order: ``dialect`` (text to tree), ``match_clause``, ``gate`` (what may run),
``binder`` (names), ``constants``, ``predicates`` and ``expressions`` (what a scan can use),
``tree_aggregates``, ``planner``, ``relations`` and ``datasets`` (what the executor reads),
``operators`` (windows and row patterns plug in there), ``executor`` (DuckDB), ``engine``,
``statements``, ``explain``, ``result``.
"""
