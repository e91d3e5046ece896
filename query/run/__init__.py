"""Plan to rows: one operator for each node.

Reading order: ``context`` (what operators are opened with), ``scan_relations`` (scans, one-row
aggregates, and operators as DuckDB reads them), ``window_operator`` (also roll-ups and filling),
``clause_operator``, ``match_operator``, ``situation_operator``, ``recent_operator`` (recency
joins), ``execution`` (and EXPLAIN).
"""
