"""Plan to rows: one operator for each node.

Reading order: ``context`` (what operators are opened with), ``scan_relations`` (scans, one-row
aggregates, and operators as the executor reads them), ``window_operator``, ``clause_operator`` and
of its kind ``match_operator`` and ``situation_operator``, ``side_by_side`` (parts in threads),
``recent_side`` and ``recent_operator`` (recency joins), ``net_operator``, ``relational_plan`` (the
executor's own plan, for EXPLAIN), ``execution``.
"""
