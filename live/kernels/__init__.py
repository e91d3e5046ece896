"""Data-parallel kernels over plain arrays, as chapter 4 of the thesis compares them.

The room imports NumPy and the kernel decorator only: it knows neither store nor queries, so that a
device can stand beside it with the same functions.

Reading order: ``filters`` (bits, then compaction), ``sliding`` (aggregates of a window that slides
by one), ``window_join`` (pairs within a time window), ``following_join`` (the same, of two streams
that go on), ``partial_matches`` (patterns
that compare an event with those before it).
"""
