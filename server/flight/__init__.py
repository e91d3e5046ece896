"""Flight SQL: the database over gRPC, for ADBC, JDBC and ODBC drivers (``--flight-port``).

Tokens, scopes, slots, limits and logs are those of HTTP.  Unless ``CHRONICLE_ISOLATION=none``, a
client's Arrow data is decoded only in worker processes.  Transactions, savepoints, sessions,
Substrait plans and DoExchange are refused.  See docs/decisions/0028-flight-sql.md.

Reading order, bottom up::

    calls         protobuf messages of both protocols; one RPC: principal, answer, error code, logs
    statements    queries behind tickets, changes, prepared statements, bulk events
    catalogue     metadata tables
    service       dispatch of RPCs and commands; the port: gRPC, TLS, shutdown
"""
