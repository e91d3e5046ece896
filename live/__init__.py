"""Live queries: one saved query over past, live and late events.

::

    a commit of the source ---> wakes the engine
                                  |
       snapshot, watermark, what came late             query
                                  |                    watermark, the store's tap of commits
         the query over the regions that may differ    analysis, forms
                                  |
            the difference to what was put out         changes
                                  |
             one commit: changes and a mark            sink

The stream is the buffer that puts late events where they belong, the state of windows and the
history; a live query reads of it what results in question are made of, with the operators that
answer any other query.  What patterns, situations and joins keep from step to step is a cache
(``pattern_state``, ``situation_state``, ``join_state``, ``recent_state``).  Patterns whose
conditions look at one event each are searched all together (``bank``): a step costs its events and
what they satisfy, not the queries.

Reading order: ``definition`` (what is kept), ``changes`` (differences), ``recollection`` (what was
said, remembered), ``removals`` (what has gone from a stream), ``sink``, ``relations`` (rows in
memory as a stream), ``forms`` (what a class of queries must say of itself), ``combined`` (the same
of any number of streams), ``plain_rows``,
``row_form``, ``window_form``, ``session_form``, ``count_form``, ``late_between`` (which events came
late), ``pattern_state``, ``pattern_form``, ``situation_state``, ``situation_form``, ``refusals``,
``analysis`` (from a SELECT of one stream to its form), ``join_columns``, ``join_binding``,
``join_state``, ``join_form``, ``recent_rows``, ``recent_state``, ``recent_form``,
``recent_analysis``, ``union_form``, ``nested_form``, ``composition`` (from any SELECT to its form),
``viewed`` (views put in), ``watermark``, ``views`` (streams that many look at), ``sources`` (the
streams of one query), ``sinks`` (where results go), ``spent``, ``webhooks`` (one request),
``delivery`` (all of them), ``options``, ``requests`` (what Python asks for), ``reconciliation``
(what late events change), ``query`` (one at work), ``bank``, ``late_history`` (events around late
ones), ``group_rows``, ``pattern_group`` (many at work together), ``sharing`` (which of them),
``definitions`` (what is kept of all), ``rounds`` (all at work), ``rollups`` (those that answer for
their stream, and hold its events), ``engine`` (statements and questions), ``handle`` (one, for
Python).
"""
