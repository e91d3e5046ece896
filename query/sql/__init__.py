"""Text to tree: what may be said, and where it stands.

Reading order: ``first_word`` (reads or changes), ``many_rows`` (of parameters), ``nesting`` (how
long and deep a text may be),
``pattern_tree``, ``pattern_parser``,
``match_clause`` (MATCH_RECOGNIZE), ``situation_clause`` (MATCH_SITUATIONS), ``canonical``,
``tokens``, ``statement_nodes``, ``index_clause``, ``live_clause``, ``change_clause``,
``creation_clause``, ``view_clause``, ``expression_parser``, ``from_parser`` (FROM items),
``dialect`` (the grammar),
``match_outline`` (matches, to be drawn), ``stream_names``, ``parameters``, ``sql_types``, ``gate``
(what may run), ``time_texts`` (texts that stand for times),
``silent_loss`` (what would be changed without a word).
"""
