"""MATCH_SITUATIONS: patterns of intervals ("situations") during which a condition holds.

Reading order: ``network`` (Allen's algebra, implied constraints), ``compiled`` (clause bound to its
input, MEASURES), ``deriving`` (rows to runs), ``join_kernels``, ``matching`` (runs to matches, join
orders, EXPLAIN), ``stream`` (driver, output rows, a range of time, late rows).
"""
