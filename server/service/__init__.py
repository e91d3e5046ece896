"""State that the requests of one server share, and the services that routes build on.

Reading order::

    around a request   metrics (also /readyz, load)  middleware (also audit, drops)
    request bodies     bodies (received, parsed, files ingested)  gathering (small appends)
    rows of answers    query_log (running and ended queries)  row_stream
    feeds              feeds (also of live queries, server-sent events)
    durable state      idempotency  answer_cache  positions (also pins)  transactions  jobs
    all of it          state
"""
