"""The embedded database: what :func:`chronicle.open` returns.

Reading order
    ``database`` (:class:`Database`).
"""
