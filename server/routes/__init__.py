"""The routes of the API, a module for each kind, after the modules that several of them use.

Reading order: ``answers`` (models of answers), ``parameters`` (query string, JSON bodies),
``route`` (from a request to a function), ``row_responses`` (streamed rows, files), ``following``
(endless answers: ``/tail``; positions); routes: ``pages`` (console, ``/docs``), ``service`` (also
status), ``streams`` (also views, profiles), ``events``, ``live``, ``bulk`` (files, transactions,
line protocol), ``queries`` (also editors, matches), ``tokens``, ``jobs`` (also backups),
``agents``.
"""
