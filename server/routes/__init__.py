"""The routes of the API, a module for each kind, below what several of them need.

Reading order: ``parameters`` (of the query string), ``json_bodies``, ``statement_values`` (typed
ones, out of JSON), ``paced_sending`` (to slow clients), ``file_responses`` (pieces of answers),
``row_responses`` (rows that are sent while they are computed),
``small_queries`` (whose rows go into one object), ``event_scan``, ``event_changes``,
``acknowledged`` (bodies that go on), ``following`` (answers that go on); then the routes:
``console`` (files for browsers), ``service``, ``reference`` (``/docs``), ``status``, ``streams``,
``profile``, ``events``, ``small_appends`` (the short way of some), ``tail``, ``live``,
``positions``, ``transactions``, ``ingest``, ``line_protocol``, ``queries``, ``language``,
``matches``, ``views``, ``tokens``, ``job_specs``, ``exchange_jobs``, ``job_kinds``, ``jobs``,
``backups``, ``agents``;
``short_reads`` (queries and reads past the router).
"""
