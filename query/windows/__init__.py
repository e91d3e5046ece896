"""Windowed aggregation: TUMBLE, HOP, TUMBLE_ROWS, HOP_ROWS and SESSION (thesis 2.3.1, 3.3).

Reading order: ``spec`` (what a window is), ``calendar`` (months, and days of a time zone),
``kernels``, ``fields`` (words of a partial),
``slices`` (partials from events), ``sweep_kernels`` and ``sweep`` (partials from the tree),
``slide_kernels`` and ``slide`` (windows from slices), ``sessions``, ``aggregation`` (the two
physical operators), ``keys``, ``keyed_kernels``, ``kept_groups`` (groups that late events are
merged into), ``keyed`` and ``keyed_sessions`` (GROUP BY beside windows), ``grains``
(windows from smaller ones), ``filling`` (windows without events), ``expand`` (events with
their windows), ``cost``, ``calibration``.
"""
