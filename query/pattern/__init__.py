"""Row patterns: a clause becomes a program, conditions become bits and bytecode, machines match.

Reading order: ``validate``, ``program``, ``automaton`` (what is searched); ``leaves``,
``spelled_out``, ``binding``, ``columns``, ``scalar``, ``typed``, ``cells``, ``functions``,
``image``, ``machine``, ``bytecode``, ``rowtests``, ``conditions``, ``interval_ticks``,
``row_types``, ``groups``, ``buffers`` (what is asked of rows); ``outcomes``, ``search``,
``waiting``, ``jumping``, ``contiguous``, ``selection``, ``any_states``, ``any_lists``,
``any_count``, ``any_walk``, ``any_search``, ``any_choice``, ``matcher`` (how it is found);
``match_identity``, ``measures``, ``results``, ``match_stream``, ``compiled`` (what comes out);
``kept_events``, ``kept_rows``, ``kept_input``, ``kept_search``, ``attempts``, ``decided``,
``positions``, ``advancing`` (the same over a stream that goes on); ``late_region`` (what a late
event changes), ``known_matches`` (rows of matches that others have found).
"""
