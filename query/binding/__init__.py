"""Names and operators: from a tree that passed the gate to a bound query.

Reading order: ``from_operator`` (the seam that operators are bound at), ``scope`` (what a name
means), ``time_order`` (aggregates that depend on the order of rows), ``tree_aggregates`` (SELECTs
that the tree answers), ``window_call``, ``window_select``, ``window_keys``, ``window_fusion`` and
``window_binding`` (windows, and what they take over of their SELECT), ``window_operands`` (how
these are compared), ``ctes``, ``hints``, ``recent_scope`` (recency joins as a SELECT sees them),
``views`` (queries with a name), ``select_outputs`` (the columns of a SELECT), ``binder`` (the walk
over a query), ``match_weights``, ``match_binding`` (row patterns), ``situation_binding`` (patterns
of situations), ``recent_binding`` (recency joins), ``recent_outline`` (their pairs, to be drawn),
``net_binding`` (results of live queries), ``frame_binding`` (tables of the program),
``system_binding`` (system tables).
"""
