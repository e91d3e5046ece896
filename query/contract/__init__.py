"""Interfaces and values that the query layer shares with its surroundings.

Reading order: ``frames`` (registered tables), ``catalog`` (required of a database, live queries,
system tables), ``access`` (visibility), ``cancellation`` (and progress), ``operator``
(clauses, searches, parts), ``explanation`` (EXPLAIN), ``result`` (batches, data frames, HTML).
"""
