"""Data-parallel kernels over plain arrays, as compared in chapter 4 of the thesis.

They depend only on NumPy and the kernel decorator, not on store or queries.

Reading order: ``filters`` (predicates, then compaction), ``sliding`` (aggregates of a window that
slides by one), ``window_join`` (pairs within a time window), ``following_join`` (the same,
incrementally), ``partial_matches`` (patterns that compare an event with earlier ones).
"""
