"""Plan to rows.

Reading order: ``relations``, ``window_operator``, ``match_operator``, ``relational_plan``.
"""
