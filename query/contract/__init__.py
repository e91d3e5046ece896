"""Interfaces and values that the query layer shares with its surroundings.

Reading order: ``frames`` (registered tables), ``rollups`` (contents of roll-ups), ``catalog``
(required of a database), ``access`` (visibility), ``progress`` and ``cancellation`` (of running
queries), ``constants`` (of cost models), ``explanation`` (EXPLAIN), ``live`` (required of live
queries), ``system_tables`` (their columns), ``html_table``, ``data_frames`` and ``result``.
"""
