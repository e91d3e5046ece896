"""What the query layer and its surroundings agree on.

Reading order: ``catalog`` (what is asked of a database), ``access`` (who may see what),
``cancellation``, ``constants`` (of cost models), ``explanation`` (what EXPLAIN answers), ``live``
(what is asked of live queries), ``result``.
"""
