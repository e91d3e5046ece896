"""Recency joins: which rows of one side happened recently, as seen from each row of the other.

Reading order: ``pairs`` (kernels), ``narrowing`` (where partners can lie, a row pattern near
regions only, which side first).
"""
