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
answer any other query.  What a pattern keeps from step to step is a cache (``pattern_state``).

Reading order: ``definition`` (what is kept), ``changes`` (differences), ``sink``, ``forms`` (what a
class of queries must say of itself), ``combined`` (the same of any number of streams),
``row_form``, ``window_form``, ``session_form``, ``count_form``, ``pattern_state``,
``pattern_form``, ``refusals``, ``analysis`` (from a SELECT to its form), ``watermark``,
``webhooks`` (one request), ``delivery`` (all of them), ``options``, ``requests`` (what Python asks
for), ``sources`` (the streams of one), ``query`` (one at work), ``engine`` (all of them),
``handle`` (one, for Python).
"""
