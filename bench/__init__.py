"""Benchmarks: ratios against a peer measured in the same run, written to docs/benchmarks.md.

Reading order: ``harness`` (what all share), ``figures`` (their pictures), ``startup``, ``store``,
``durability``, ``index_ingest`` (events in), ``windows``, ``patterns`` with ``flink`` as a peer,
``skip_till_any``, ``situations``, ``recency``, ``factory``, ``crimes``, ``pattern_stream`` and
``pattern_indexes`` (patterns by replay intervals),
``spark_connector``, ``spark_patterns``, ``isolation`` (what worker processes cost),
``served`` (a server and its clients as processes), ``live``, ``live_latency`` and ``live_load``
(live queries), ``live_bank`` (many live patterns), ``chapter4`` (kernels).
"""
