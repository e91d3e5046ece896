"""Ten thousand patterns over one stream at a cost that grows with their hits.

::

    few events --> predicate index ---> (row, symbol) ---> (query, row, bits) ---> automata
                   of every condition                      counting sort     |     of every query
    many events -> sorted ------------> postings of every condition ---------+

A *symbol* is the condition of a pattern variable, whoever uses it; a *hit* is an event that
satisfies one.  Events that satisfy nothing of a query are never shown to it.  The room knows
patterns and arrays, not the store.

Reading order: ``symbols`` (conditions in a normal form, each once), ``cards`` (a pattern as small
as it can be kept), ``predicate_index`` (which symbols an event satisfies), ``postings`` (which
events satisfy a symbol), ``automata`` (all patterns in one set of tables), ``searching`` (the
kernel), ``partitions``, ``matches``, ``layer`` (patterns that are built together), ``pattern_bank``
(the state, and a step), ``cuts`` (where a search may begin), ``regions`` (patterns that come),
``event_columns``, ``arranged`` (events by partition, late ones put between), ``corrections`` (what
late events change).
"""
