"""Authentication, authorization and admission.  Reading order: ``settings`` (also
TLS), ``tokens`` (the server's files, audit log), ``identity_provider`` (JWTs), ``auth`` (the
principal, its rights and request rate), ``limits`` (slots and byte budgets).
"""
