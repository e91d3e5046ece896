"""Plans: what an execution does, as immutable values.

Reading order: ``nodes`` (what there is), ``cuts`` (how a query may be divided), ``pass_through``
(SELECTs that leave nothing to the executor), ``prepared`` (what the text decides), ``scans``,
``planner`` (what the values of one execution decide), ``window_plan``, ``rollup_plan`` (windows
that a roll-up answers), ``match_plan``, ``situation_times`` and ``situation_plan``,
``recent_plan``, ``net_plan``, ``frame_plan``, ``system_plan``, ``division`` (a plan in parts),
``small_queries`` (plans that cost next to nothing).
"""
