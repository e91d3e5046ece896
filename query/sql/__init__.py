"""Text to tree: what may be said, and where it stands.

Reading order: ``nesting`` (how long and deep a text may be), ``pattern_tree``, ``pattern_parser``,
``match_clause`` (MATCH_RECOGNIZE), ``situation_clause`` (MATCH_SITUATIONS), ``canonical``,
``statement_nodes``, ``live_clause``, ``expression_parser``, ``from_parser`` (FROM items),
``dialect`` (the grammar), ``stream_names``, ``parameters``, ``sql_types``, ``gate`` (what may run),
``silent_loss`` (what would be changed without a word).
"""
