"""One pattern query as independent parts: planned once, run anywhere, every match in one part.

Reading order: ``parts`` (what a part is, and how it runs), ``reach`` (how far a match goes),
``cuts`` (where time can be cut), ``shares`` (groups of partitions), ``planning``.
"""
