"""Authentication, authorization and admission.  Reading order: ``settings``, ``tls``,
``server_directory`` (the server's files), ``audit_log``, ``token``, ``tokens`` (their file),
``identity_provider`` (JWTs), ``rates`` (requests a second), ``auth`` (the principal),
``statement_rights`` (rights of a SQL text), ``limits`` (slots and byte budgets).
"""
