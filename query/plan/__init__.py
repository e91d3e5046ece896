"""Plans: what an execution does, as immutable values.

Reading order: ``nodes``, ``cuts`` (divisible queries), ``pass_through`` (without executor),
``prepared`` (decided by the text), ``scans``, ``planner`` (decided by the values), ``window_plan``,
``rollup_plan``, ``match_plan``, ``situation_times``, ``situation_plan``, ``recent_plan``,
``net_plan``, ``frame_plan``, ``system_plan``, ``division`` (a plan in parts), ``small_queries``.
"""
