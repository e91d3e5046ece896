"""What a condition on events implies for a scan.

Reading order: ``constants`` (folding, equality of keys), ``ranges`` (time and how it is shown),
``predicates`` (from SQL), ``pushed_filters`` (from DuckDB's filters), ``exact_filters`` (to Arrow's
filters, rows that satisfy one).
"""
