"""An open store: what ``chronicle.open`` gives to users, the server and the tools to work with.

Reading order
    ``tailing`` (commits as they happen), ``streams`` (one stream: append, scan, aggregate),
    ``store_catalog`` (the store, its indexes, query engine and live queries, wired together).
"""
