"""What the requests of one server share, and what it remembers between them.

Reading order::

    around a request   metrics  drops  audit  middleware  probe
    a body in          bodies  event_parsing  small_bodies  gathering
    rows out           query_log  running_queries  system_rows  answer_times  encoding  haste
    that go on         feeds  live_feed  followers
    remembered         key_log  idempotency  snapshots  kept_answers  positions  transactions
                       job_files  jobs
    how busy it was    load_history
    all of it          state
    with all of it     file_ingest  statements  computing
"""
