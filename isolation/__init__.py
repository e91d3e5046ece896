"""Worker processes for untrusted bytes and untrusted SQL.

The process that owns a store decodes no foreign file formats and runs no foreign SQL, since a bug
in either could corrupt the store.  Confined *workers* do, and their output is validated.  Queries
and formats bring their own *entry* modules. ::

    server ----control----> fork_server (clean: one thread, no foreign byte ever)
       |                       |fork
       +------channel------> worker, worker, ...      confined before they read the first byte

Reading order: ``confinement`` (limits of a worker), ``fork_server`` (forks workers; no pandas),
``channel`` (messages, also for a worker's threads), ``batches``
(validated Arrow data), ``pool`` (reuse, limits, replacement).
"""
