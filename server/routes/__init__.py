"""The routes of the API, a module for each kind, below what several of them need.

Reading order: ``parameters`` (of the query string), ``json_bodies``, ``row_responses`` (rows that
are sent while they are computed), ``event_scan``, ``following`` (answers that go on); then the
routes: ``service``, ``streams``, ``events``, ``tail``, ``live``, ``positions``, ``transactions``,
``queries``.
"""
