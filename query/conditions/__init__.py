"""What a condition on events implies for a scan.

Reading order: ``constants`` (folding, equality of keys), ``predicates`` (from SQL, time ranges),
``row_filters`` (which rows of a batch satisfy one, DuckDB's filters).  ``store.prune`` has the
predicates, and what statistics of nodes say.
"""
