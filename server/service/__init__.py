"""State that the requests of one server share, and the services that routes build on.

Reading order::

    around a request   metrics (also /readyz)  middleware (also audit, drops)
    request bodies     bodies  event_parsing (also file ingest)  gathering (small appends)
    rows of answers    query_log (running and ended queries)  encoding
    feeds              feeds (also of live queries)
    durable state      idempotency  answer_cache  positions (also pins)  transactions  jobs
    load samples       load_history
    all of it          state
    users of it        statements
"""
