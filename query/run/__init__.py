"""Plan to rows: one operator for each node.

Reading order: ``context`` (what operators are opened with), ``scan_relations`` (scans, one-row
aggregates, and operators as the executor reads them), ``window_operator``, ``rollup_operator``,
``filled_operator``, ``clause_operator`` and of its kind ``match_operator`` and
``situation_operator``, ``recent_side`` and ``recent_operator`` (recency joins),
``net_operator``, ``frame_operator``, ``system_operator``,
``relational_plan`` (the executor's own plan, for EXPLAIN), ``execution``.
"""
