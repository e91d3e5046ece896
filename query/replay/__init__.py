"""Replay intervals: run a pattern only where history can hold a match.

Reading order: ``spans`` (sets of positions), ``timeline`` (positions and times),
``shared_columns``, ``implied_ranges``, ``rounded_sums``, ``derived_terms``, ``pair_terms``,
``terms``, ``bands``, ``pattern_parts`` and ``symbols`` (what every match contains),
``applicability`` (which clauses), ``cost`` (weights and model), ``memo``, ``buckets`` and
``coarse`` (pruning by leaves), ``event_lookup`` (without an index), ``kept_lookups``,
``candidates`` (Algorithm 3.1), ``context`` (snapshot and indexes), ``extremes``, ``rates`` and
``offers`` (terms to look up), ``base_reader``, ``partition_keys``, ``partition_spans`` and
``partition_neighbours`` (PARTITION BY), ``near`` (restricted ranges), ``choice`` and
``replay_plan`` (values), ``regions`` (for drawing), ``agreement``, ``pricing``, ``term_selection``
(Algorithm 3.2), ``choosing``, ``lookups``, ``intervals``, ``shared_keys``, ``coded_spans``,
``fitting``, ``rooms``, ``stream_intervals``, ``partition_intervals``, ``late_ranges``,
``considered``, ``ways`` and ``planning`` (all stages); ``column_gather``, ``objects_ahead``,
``reader``, ``partition_reader``, ``interval_stream`` and ``run_plan`` (execution);
``situation_outline``, ``rows_before``, ``situation_ticks``, ``situation_intervals`` and
``tree_runs`` (situations); ``filtering`` (WHERE through indexes), ``subqueries``, ``calibration``.
"""
