"""One pattern query as independent parts: planned once, run anywhere, every match in one part.

Reading order: ``parts`` (what a part is, how it runs), ``reach`` (how far a match goes), ``cuts``
(where time can be cut), ``index_parts`` (shares by match number), ``expected`` (expected matches),
``ranges`` and ``long_intervals`` (parts between cuts), ``intervals`` (groups of replay intervals),
``shares`` (groups of partitions), ``known`` (matches decided up to a tick), ``planning``;
``situation_parts``, ``situation_split`` (the same for situations).
"""
