"""Live queries: a saved query whose results are kept current as events arrive, also late ones.

::

    commit of a source ---> wakes the engine
             |
    snapshot, watermark, late events              query, watermark, tap of commits
    the query over the dirty ranges               analysis, forms
    difference from the results already emitted   changes
    one commit: changes and a checkpoint mark     sink

The source stream is the reordering buffer, the window state and the history; a live query reads it
with the operators of any other query.  State kept between steps (``*_state``) is only a cache.
Patterns whose conditions each read one event share one search (``bank``).

Reading order: ``definition`` (stored definition), ``changes`` (differences), ``recollection``
(cache of output), ``removals`` (effects of retention), ``sink``, ``relations`` (tables in memory),
``forms`` (interface of query classes), ``combined`` (over several streams), ``plain_rows``,
``row_form``, ``window_form``, ``session_form``, ``count_form``, ``late_between`` (late events),
``pattern_state``, ``pattern_form``, ``situation_state``, ``situation_form``, ``refusals``,
``analysis`` (one stream), ``join_columns``, ``join_binding``, ``join_state``, ``join_form``,
``recent_rows``, ``recent_state``, ``recent_form``, ``recent_analysis``, ``union_form``,
``nested_form``, ``composition`` (any SELECT), ``viewed`` (views), ``watermark``, ``views`` (shared
snapshots), ``sources``, ``sinks``, ``spent``, ``webhooks``, ``delivery``, ``options``,
``requests``, ``reconciliation`` (corrections), ``query`` (one running query), ``bank``,
``late_history``, ``group_rows``, ``pattern_group``, ``sharing`` (groups), ``definitions``,
``rounds`` (scheduling), ``rollups``, ``engine`` (statements), ``handle`` (Python API).
"""
