"""Queries: SQL text to results.  A folder imports only from those above it::

    contract/     what operators, parts and the database promise, and values for callers
    sql/          text to tree: grammar, clauses, gate, parameters; and back to text
    relational/   DuckDB: gate, executor, datasets
    conditions/   predicate pushdown: constants, bounds, predicates
    pattern/      row patterns: program, conditions, machines, measures
    situations/   patterns over stretches of time: relations, runs, joins
    windows/      windows: slices, sweep and slide, keys, costs
    replay/       which parts of a stream a pattern or a filter needs
    split/        one query as parts for other processes
    recent/       recency joins: kernels, regions, narrowing
    binding/      names: relations, columns, the SELECT around operators
    plan/         bound query to plan: immutable nodes, explained, pickled
    run/          plan to rows: one operator for each node

Reading order: each folder's own, in this order; then ``relations`` (NET, frames, system
tables), ``operators`` (items of FROM), ``engine`` (text in, result out), ``modification`` (INSERT,
DELETE, UPDATE), ``statements`` (others that are not
queries), ``matches`` (as data).  docs/architecture.md follows one query from text to rows.
"""
