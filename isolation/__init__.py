"""Processes for foreign bytes and foreign SQL: made cheaply, confined, believed in nothing.

The process that owns a store runs neither the decoders of a file format on a stranger's bytes nor
the relational executor on a stranger's SQL: a mistake in either would be a mistake in the store.
Such work is done by *workers*.  This room knows how a worker comes to be, what it may do, how it
is spoken with and how it ends; it knows neither queries nor formats, which bring an *entry*
module of their own (``query/relational/sql_worker.py``, ``formats/decoder.py``).

Reading order: ``confinement`` (what a worker cannot do), ``nursery`` (a clean process that forks
workers), ``channel`` (messages between the two sides), ``inbox`` (for several threads of a worker),
``region`` (memory that the owner writes and a worker only reads), ``batches`` (Arrow data, checked
before it is believed), ``pool`` (workers kept, watched and replaced).

::

    server ----control----> nursery (clean: one thread, no foreign byte ever)
       |                       |fork
       +------channel------> worker, worker, ...      confined before they read the first byte
"""
