"""Benchmarks: ratios against a peer measured in the same run, written to docs/benchmarks.md.

Reading order: ``harness`` (what all share), ``figures`` (their pictures), ``startup``, ``store``,
``durability``, ``changing`` (what is stored), ``index_ingest`` (events in),
``windows``, ``rollups``, ``patterns`` with ``flink`` as a peer,
``skip_till_any``, ``situations`` (with ``situation_peers`` and ``situation_history``),
``recency``, ``crimes``, ``pattern_stream`` and
``pattern_indexes`` (patterns by replay intervals), ``cold`` (from disks and objects), ``moving``,
``segments`` (many of them), ``selective`` (of every kind), ``spark_connector``, ``spark_patterns``,
``isolation`` (what worker processes cost),
``served`` (a server and its clients as processes), ``load`` and ``small_requests`` (many of them),
``two_clients`` (big ones),
``live``, ``live_latency``, ``live_load`` and ``live_soak`` (live queries),
``live_bank`` (many live patterns), ``chapter4`` (kernels).
"""
