"""Name resolution and operators: from a checked syntax tree to a bound query.

Reading order: ``from_operator`` (interface of operators), ``scope`` (names), ``time_order``
(order-dependent aggregates), ``tree_aggregates``, ``window_call``, ``window_select``,
``window_keys``, ``window_fusion``, ``window_binding`` (windows), ``window_operands`` (comparison),
``ctes``, ``hints``, ``recent_scope`` (sides as sources), ``views``, ``select_outputs`` (columns),
``binder`` (the tree walk), ``match_weights``, ``match_binding`` (row patterns),
``situation_binding``, ``recent_binding``, ``recent_outline`` (pairs for drawing), ``net_binding``,
``frame_binding``, ``system_binding``.
"""
