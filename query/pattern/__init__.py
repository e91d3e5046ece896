"""Row patterns: a clause becomes a program, conditions become bits and bytecode, machines match.

Reading order: ``validate``, ``program``, ``automaton`` (what is searched); ``leaves``,
``spelled_out``, ``members``, ``binding``, ``columns``, ``scalar``, ``typed``, ``cells``,
``functions``,
``image``, ``machine``, ``bytecode``, ``load_code``, ``operator_code``, ``function_code``,
``rowtests``, ``conditions``, ``interval_ticks``, ``row_types``, ``groups``, ``buffers`` (what is
asked of rows); ``outcomes``, ``horizons``, ``search``,
``matches``, ``waiting``, ``jumping``, ``contiguous``, ``selection``, ``any_states``,
``any_lists``, ``any_count``, ``any_walk``, ``any_batches``, ``any_output``, ``any_search``,
``any_pairs``, ``any_partners``, ``any_diagram``, ``any_restriction``, ``any_asking``,
``any_joins``, ``any_cost``, ``any_blocks``, ``any_drawing``, ``any_tree``, ``any_choice``,
``matcher`` (how it is found);
``match_identity``, ``measures``, ``results``, ``match_stream``, ``compiled`` (what comes out);
``kept_events``, ``kept_rows``, ``kept_input``, ``kept_search``, ``attempts``, ``decided``,
``positions``, ``advancing`` (the same over a stream that goes on); ``late_events``,
``late_region`` (what late events change), ``known_matches`` (rows of matches that others have
found).
"""
