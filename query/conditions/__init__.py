"""What a condition on events implies for a scan.

Reading order: ``constants`` (folding), ``ranges`` (time and how it is shown), ``bounds``,
``predicates`` (from SQL), ``pushed_filters`` (from DuckDB's filters), ``exact_filters`` (to Arrow's
filters), ``row_truths`` (rows that satisfy one), ``key_values`` (equality of keys).
"""
