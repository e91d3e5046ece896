"""Windowed aggregation: TUMBLE, HOP, TUMBLE_ROWS, HOP_ROWS and SESSION (thesis 2.3.1, 3.3).

Reading order: ``spec`` (windows, slices, calendar), ``kernels`` (partials), ``fields`` (aggregates
to fields), ``slices`` (replay, slices to windows), ``sweep`` (tree), ``aggregation`` (physical
operators, costs), ``group_cache`` (key codes, groups that late events update), ``keyed`` (GROUP
BY beside windows, sessions), ``filling`` (empty windows), ``expand`` (events with their windows).
"""
