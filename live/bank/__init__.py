"""A bank: one search for thousands of patterns over a stream, at a cost that grows with their hits.

::

    few events --> predicate index ---> (row, symbol) ---> (query, row, bits) ---> automata
                   of all conditions                counting sort     |         of all queries
    many events -> sorted ------------> postings of every condition --+

A *symbol* is a condition, shared by all pattern variables that use it; a *hit* is an event that
satisfies one.  Reading order: ``symbols`` (normalised conditions), ``cards`` (serialised patterns),
``predicate_index`` (event to symbols), ``postings`` (symbol to events), ``automata`` (flat tables),
``searching`` (kernel), ``partitions``, ``matches``, ``layer`` (patterns built together),
``pattern_bank`` (state), ``cuts`` (start rows), ``regions`` (added patterns), ``event_columns``,
``arranged`` (recent events), ``corrections`` (late events).
"""
