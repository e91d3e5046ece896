"""Who may do what, and how much of it at once.

Reading order: ``settings``, ``server_directory`` (where the server keeps its files), ``tokens``,
``auth`` (who is asking), ``statement_rights`` (what a SQL text is about to do), ``limits`` (gates
and byte budgets).
"""
