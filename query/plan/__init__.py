"""Plans: what an execution does, as immutable values.

Reading order: ``nodes``, ``pass_through`` (without executor), ``prepared`` (decided by the text),
``planner`` (decided by the values), ``window_plan`` (also roll-ups), ``match_plan``,
``situation_plan``, ``recent_plan``, ``relation_plan`` (NET, frames, system tables), ``division`` (a
plan in parts).
"""
