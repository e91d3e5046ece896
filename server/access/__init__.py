"""Who may do what, and how much of it at once.

Reading order: ``settings``, ``tls`` (certificates), ``server_directory`` (where the server keeps
its files), ``audit_log``, ``token``, ``tokens`` (their file), ``identity_provider`` (JWTs),
``rates`` (requests a second), ``auth`` (who is asking), ``statement_rights`` (what a SQL text is
about to do), ``limits`` (gates and byte budgets).
"""
