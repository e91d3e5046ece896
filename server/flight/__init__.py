"""Flight SQL: the database over gRPC, for ADBC, JDBC and ODBC drivers, in Arrow from end to end.

Purpose
    A second door, beside HTTP, into the same house: the tokens and scopes of :mod:`..access`, the
    gates, limits, running queries and logs of :mod:`..service`.  ``chronicle serve --flight-port``
    opens it; it needs the extra ``flight``.

Layout
    Reading order, bottom up::

        messages                  the messages of both protocols
        statuses                  what errors are in gRPC
        arrow_data                record batches to FlightData and back
        calls                     one RPC: who asks, how it is answered, its line in the log
        statements  prepared      queries behind tickets; changes; parameters
        catalogue  sql_info       tables, types and abilities, as tables
        loading                   DoPut: parameters, updates, events in bulk
        service                   which RPC and which command is done by whom
        listening                 the port: gRPC on the server's own event loop, TLS, its end

Guarantee
    Nothing here blocks the event loop, and nothing of a client's Arrow data is decoded in this
    process unless the server trusts its clients (``CHRONICLE_ISOLATION=none``): it goes, as the
    bytes it came as, the way that a body of HTTP goes.

Limits
    docs/decisions/0028-flight-sql.md says why gRPC's own server rather than that of pyarrow.
    Transactions, savepoints, sessions, Substrait plans and DoExchange are refused.
"""
