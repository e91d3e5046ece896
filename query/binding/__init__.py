"""Name resolution and operators: from a checked syntax tree to a bound query.

Reading order: ``scope`` (names, columns, interface of operators), ``tree_aggregates``, ``binder``
(the tree walk, CTEs, hints), ``views``, ``window_binding``, ``match_binding`` (row patterns,
situations), ``recent_binding`` (recency joins).
"""
