"""Row pattern recognition (MATCH_RECOGNIZE, ISO/IEC 9075-2) and event selection.

A clause becomes a program and an automaton, conditions become bits or bytecode, kernels search.
Reading order: ``validate`` (names, options), ``program``, ``automaton`` (compilation); ``leaves``,
``spelled_out``, ``members``, ``binding`` (expressions), ``columns``, ``scalar`` (DuckDB),
``typed``, ``cells``, ``functions``, ``image``, ``machine``, ``bytecode``, ``load_code``,
``operator_code``, ``function_code`` (stack machine), ``rowtests``, ``conditions``,
``interval_ticks``, ``row_types``, ``groups``, ``buffers`` (conditions over rows); ``outcomes``,
``horizons``, ``search``, ``matches``, ``waiting``, ``jumping``, ``contiguous``, ``selection``
(searches); ``any_states``, ``any_lists``, ``any_count``, ``any_walk``, ``any_batches``,
``any_output``, ``any_search`` (SKIP TILL ANY MATCH with lists); ``any_pairs``, ``any_partners``,
``any_diagram``, ``any_restriction``, ``any_asking``, ``any_joins``, ``any_cost``, ``any_blocks``,
``any_drawing``, ``any_tree``, ``any_choice`` (with joins); ``matcher`` (driver);
``match_identity``, ``measures``, ``results``, ``match_stream``, ``compiled`` (output);
``kept_events``, ``kept_rows``, ``kept_input``, ``kept_search``, ``attempts``, ``decided``,
``positions``, ``advancing`` (incremental); ``late_events``, ``late_region`` (late events),
``known_matches`` (rows of given matches).
"""
