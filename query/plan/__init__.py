"""Plans: what an execution does, as immutable values.

Reading order: ``nodes``, ``prepared`` (decided by the text), ``planner`` (decided by the values),
``window_plan`` (also roll-ups), ``match_plan`` (also situations), ``recent_plan``, ``division``
(a plan in parts).
"""
