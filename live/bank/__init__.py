"""A bank: one search for thousands of patterns over a stream, at a cost that grows with their hits.

::

    few events --> predicate index ---> (row, symbol) ---> (query, row, bits) ---> automata
                   of all conditions                counting sort     |         of all queries
    many events -> sorted ------------> postings of every condition --+

A *symbol* is a condition, shared by all pattern variables that use it; a *hit* is an event that
satisfies one.  Reading order: ``symbols`` (normalised conditions, stored patterns),
``predicate_index`` (event to symbols), ``postings`` (symbol to events), ``searching`` (kernel),
``matches``, ``layer`` (patterns built together, flat tables), ``pattern_bank`` (state),
``arranged`` (recent events by partition), ``corrections`` (late events, start rows, added
patterns).
"""
