"""What the requests of one server share, and what it remembers between them.

Reading order::

    around a request   metrics  drops  middleware  probe
    a body in          bodies  event_parsing
    rows out           running_queries  encoding
    that go on         feeds  live_feed  followers
    remembered         key_log  idempotency  snapshots  positions  transactions
    all of it          state
"""
