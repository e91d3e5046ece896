"""SQL text to syntax tree: grammar, limits and validation.

Reading order: ``first_word`` (reads or changes), ``many_rows`` (INSERT of many rows), ``nesting``
(limits of length and depth), ``pattern_tree``, ``pattern_parser``, ``match_clause``
(MATCH_RECOGNIZE), ``situation_clause`` (MATCH_SITUATIONS), ``canonical``, ``tokens``,
``statement_nodes``, ``index_clause``, ``live_clause``, ``change_clause``, ``creation_clause``,
``view_clause``, ``expression_parser``, ``from_parser`` (FROM items), ``dialect`` (the grammar),
``match_outline`` (matches for drawing), ``stream_names``, ``parameters``, ``sql_types``, ``gate``
(allow list), ``time_texts`` (time literals), ``silent_loss`` (lossy conversions).
"""
