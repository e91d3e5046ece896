"""Queries: SQL text to results, floor by floor; a folder imports only from those above it here.

::

    contract/     what the layer asks of a database, and what its callers get
    sql/          text to tree: grammar, clauses, gate, parameters; and the only way back to text
    relational/   DuckDB: its door, the executor, the datasets it reads
    conditions/   what a condition on events says to a scan: constants, bounds, predicates
    pattern/      row patterns: program, conditions, machines, measures
    situations/   patterns over stretches of time: relations, runs, joins
    windows/      windows: slices, sweep and slide, keys, costs
    replay/       which parts of a stream a pattern or a filter needs at all
    split/        one query as parts that other processes run
    binding/      names: which relation, which column; what operators make of their SELECT
    plan/         bound query to plan: immutable nodes, explained, pickled
    run/          plan to rows: one operator for each node

Reading order: each folder's own, in the order above; then ``operators`` (the table of what
may stand in FROM), ``statement_cache``, ``region``, ``engine`` (the roof: text in, result out),
``insertion``, ``column_defaults``, ``deletion``, ``update``, ``creation``, ``live_statements``,
``view_statements`` and ``statements`` (those that are not queries), ``matches`` (of a row pattern,
as data).
docs/architecture.md follows one query from text to rows.
"""
