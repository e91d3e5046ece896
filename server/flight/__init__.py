"""Flight SQL: the database over gRPC, for ADBC, JDBC and ODBC drivers (``--flight-port``).

Tokens, scopes, slots, limits and logs are those of HTTP.  Unless ``CHRONICLE_ISOLATION=none``, a
client's Arrow data is decoded only in worker processes.  Transactions, savepoints, sessions,
Substrait plans and DoExchange are refused.  See docs/decisions/0028-flight-sql.md.

Reading order, bottom up::

    messages                  protobuf messages of both protocols
    statuses                  gRPC codes of errors
    arrow_data                record batches to FlightData and back
    calls                     one RPC: principal, answer, logs
    statements  prepared      queries behind tickets; changes; parameters
    catalogue  sql_info       metadata tables
    loading                   DoPut: parameters, updates, bulk events
    service                   dispatch of RPCs and commands
    listening                 the port: gRPC, TLS, shutdown
"""
