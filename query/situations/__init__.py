"""Situations: patterns over stretches of time in which a condition holds.

Reading order: ``relations``, ``network`` (what a pattern means and implies); ``derive_kernels``,
``measures``, ``compiled`` (a clause bound to its input); ``deriving`` (rows to runs); ``ordering``,
``join_kernels``, ``matching`` (runs to matches), ``certifying``; ``results``, ``stream`` (matches
to rows), ``explained``.
"""
