"""One pattern query as independent parts: planned once, run anywhere, every match in one part.

Reading order: ``parts`` (what a part is, how it runs, reach of matches), ``cuts`` (where time can
be cut, decided matches), ``planning`` (which parts).
"""
