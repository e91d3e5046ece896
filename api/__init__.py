"""The embedded database: what :func:`chronicle.open` returns, and the streams in it.

Reading order
    ``database`` (:class:`Database`, which wires the layers together), ``streams`` (one stream:
    append, scan, aggregate), ``tailing`` (commits as they happen).
"""
