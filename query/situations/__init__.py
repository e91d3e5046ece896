"""MATCH_SITUATIONS: patterns of intervals ("situations") during which a condition holds.

Reading order: ``relations`` (Allen's algebra), ``network`` (implied constraints),
``derive_kernels`` (rows to runs), ``measures``, ``compiled`` (clause bound to its input),
``deriving`` (state per partition), ``ordering`` (join orders), ``join_kernels``, ``matching`` (runs
to matches), ``certifying`` (starts cut off by the scan), ``results`` (output rows), ``stream``
(driver), ``explained`` (EXPLAIN).
"""
