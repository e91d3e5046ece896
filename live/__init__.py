"""Live queries: a saved query whose results are kept current as events arrive, also late ones.

::

    commit of a source ---> wakes the engine
             |
    snapshot, watermark, late events              query, sources
    the query over the dirty ranges               analysis, forms
    difference from the results already emitted   changes
    one commit: changes and a checkpoint mark     sink

The source stream is the reordering buffer, the window state and the history; a live query reads it
with the operators of any other query.  State kept between steps is only a cache.  Patterns whose
conditions each read one event share one search (``bank``).

Reading order:

* *results*: ``definition`` (stored definitions), ``changes`` (differences), ``sink`` (changelog);
* *classes over one stream*: ``forms`` (interface), ``row_form``, ``window_form`` (also sessions and
  counts), ``pattern_form``, ``instant_form`` (situations and the like), ``analysis`` (from a SELECT
  to its class);
* *over several*: ``join_binding``, ``join_form``, ``recent_form`` (recency joins), ``composition``
  (subqueries, UNION ALL, views, any SELECT);
* *running*: ``sources`` (watermarks, late events), ``delivery`` (webhooks), ``options``,
  ``query`` (one running query), ``bank``, ``pattern_group`` and ``sharing`` (groups),
  ``rounds`` (scheduling), ``rollups``, ``engine`` (statements, handles).
"""
