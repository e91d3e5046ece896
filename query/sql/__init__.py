"""SQL text to syntax tree: grammar, limits and validation.

Reading order: ``first_word`` (reads or changes), ``nesting`` (limits of length and depth),
``pattern_tree`` (PATTERN), ``match_clause`` (MATCH_RECOGNIZE), ``situation_clause``
(MATCH_SITUATIONS), ``statement_clauses`` (nodes, statements that are not queries),
``from_parser`` (FROM items), ``dialect`` (the grammar, canonical text), ``trees`` (nodes as
lists), ``parameters``, ``sql_types`` (and time literals), ``forms`` (closed lists of words and node
classes), ``rendering`` (tree to text), ``gate`` (allow list).
"""
