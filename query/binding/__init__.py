"""Names and operators: from a tree that passed the gate to a bound query.

Reading order: ``scope`` (what a name means), ``operators`` (what stands in FROM besides streams),
``tree_aggregates`` (SELECTs that the tree answers), ``window_call``, ``window_select``,
``window_keys``, ``window_fusion`` (what the window operator takes over), ``binder``.
"""
