"""Windowed aggregation: TUMBLE, HOP, TUMBLE_ROWS, HOP_ROWS and SESSION (thesis 2.3.1, 3.3).

Reading order: ``spec`` (windows and slices), ``calendar`` (months, time zones), ``kernels``
(partials), ``fields`` (aggregates to fields), ``slices`` (replay), ``sweep_kernels``, ``sweep``
(tree), ``slide_kernels``, ``slide`` (slices to windows), ``sessions``, ``aggregation`` (physical
operators), ``keys`` (key codes), ``keyed_kernels``, ``kept_groups`` (groups that late events
update), ``keyed``, ``keyed_sessions`` (GROUP BY beside windows), ``grains`` (windows from smaller
ones), ``filling`` (empty windows), ``expand`` (events with their windows), ``cost``,
``calibration``.
"""
