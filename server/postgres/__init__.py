"""PostgreSQL's wire protocol, for reading: psql, BI tools and drivers (``--postgres-port``).

Tokens (as the password), scopes, slots, limits and logs are those of HTTP.  Statements run read
only; transactions are accepted and change nothing.  COPY, cursors, LISTEN and function calls are
refused.  See docs/decisions/0045-postgres.md.

Reading order, bottom up::

    messages    the protocol's messages, read and written by one table
    values      types, rows and parameters
    catalogue   pg_catalog: tables, functions and the translation of queries over them
    statements  what a text is, its parameters, and the query behind a portal
    service     sessions: startup, simple and extended queries; the port
"""
