"""A bank: one search for thousands of patterns over a stream, at a cost that grows with their hits.

::

    events -> predicate index ---> (query, row, bits) ---> automata
              of all conditions                            of all queries

A *symbol* is a condition, shared by all pattern variables that use it; a *hit* is an event that
satisfies one.  Reading order: ``symbols`` (normalised conditions, stored patterns),
``predicate_index`` (events to hits), ``searching`` (kernel), ``layer`` (matches, patterns
built together, flat tables), ``pattern_bank`` (state), ``corrections`` (late events, also of a
pattern by itself; added patterns).
"""
