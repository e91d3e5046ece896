"""Replay intervals: run a pattern only where history can hold a match.

Reading order: ``spans`` (sets of positions), ``timeline`` (positions and times), ``terms``,
``symbols`` (what every match contains), ``applicability`` (which clauses), ``buckets`` and
``coarse`` (pruning by leaves), ``context`` (snapshot and indexes), ``candidates`` (Algorithm 3.1),
``offers`` (terms to look up), ``partitions`` (PARTITION BY), ``replay_plan`` (values), ``regions``
(for drawing), ``cost`` (which terms), ``lookups``, ``coded_spans``, ``locating``, ``intervals`` and
``planning`` (all stages); ``reading`` and ``run_plan`` (execution); ``situation_intervals`` and
``tree_runs`` (situations); ``filtering`` (WHERE and subqueries through indexes).
"""
