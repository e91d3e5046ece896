"""Plan to rows: one operator for each node.

Reading order: ``context`` (what operators are opened with), ``scan_relations`` (scans, one-row
aggregates, and operators as DuckDB reads them), ``window_operator``, ``rollup_operator``,
``filled_operator``, ``clause_operator`` with ``match_operator`` and ``situation_operator``,
``recent_side`` and ``recent_operator`` (recency joins), ``net_operator``, ``frame_operator``,
``system_operator``, ``relational_plan`` (DuckDB's plan, for EXPLAIN), ``execution``.
"""
