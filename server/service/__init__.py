"""State that the requests of one server share, and the services that routes build on.

Reading order::

    around a request   metrics  drops  audit  middleware  probe
    request bodies     bodies  event_parsing  small_bodies  gathering
    rows of answers    query_log  running_queries  system_rows  answer_times  encoding  haste
    feeds              feeds  live_feed  followers
    durable state      key_log  idempotency  snapshots  kept_answers  positions  transactions
                       job_files  jobs
    load samples       load_history
    all of it          state
    users of it        file_ingest  statements  computing
"""
