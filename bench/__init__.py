"""Benchmarks: ratios against a peer measured in the same run, written to bench/results.

Reading order: ``harness`` (shared by all), ``figures`` (plots), ``startup``, ``first_calls``,
``store``, ``bytes``, ``durability``, ``changing`` (storage), ``index_ingest``, ``windows``,
``rollups``, ``patterns`` with ``flink`` as a peer, ``keyed``, ``skip_till_any``, ``situations``
(with ``situation_peers`` and ``situation_history``), ``recency``, ``crimes``, ``pattern_stream``
and ``pattern_indexes`` (index-based patterns), ``cold`` (disk and object store), ``moving``,
``segments`` (many), ``selective``, ``spark_connector``, ``spark_patterns``, ``isolation`` (cost of
worker processes), ``served`` (server and clients as processes), ``load`` and ``small_requests``,
``two_clients`` (large requests), ``live``, ``live_latency``, ``live_load``, ``live_soak``,
``live_bank`` (many live patterns).
"""
