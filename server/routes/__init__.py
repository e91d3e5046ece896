"""The routes of the API, a module for each kind, after the modules that several of them use.

Reading order: ``parameters`` (query string), ``json_bodies``, ``statement_values`` (typed values
from JSON), ``paced_sending`` (slow clients), ``file_responses`` (byte ranges), ``row_responses``
(streamed rows), ``small_queries`` (rows inside one object), ``event_scan``, ``event_changes``,
``acknowledged`` (endless bodies), ``following`` (endless answers); routes: ``console`` (static
files), ``service``, ``reference`` (``/docs``), ``status``, ``streams``, ``profile``, ``events``,
``small_appends`` (fast path), ``tail``, ``live``, ``positions``, ``transactions``, ``ingest``,
``line_protocol``, ``queries``, ``language``, ``matches``, ``views``, ``tokens``, ``job_specs``,
``exchange_jobs``, ``job_kinds``, ``jobs``, ``backups``, ``agents``; ``short_reads`` (fast path of
queries and reads).
"""
