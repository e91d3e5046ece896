"""What the query layer and its surroundings agree on.

Reading order: ``frames`` (tables of the program around a database), ``rollups`` (what roll-ups
hold), ``catalog`` (what is asked of
a database), ``access`` (who may see what), ``progress`` and ``cancellation`` (of a running query),
``constants`` (of cost models), ``explanation`` (what EXPLAIN answers), ``live`` (what is asked of
live queries), ``system_tables`` (their columns), ``html_table``,
``data_frames`` and ``result``.
"""
