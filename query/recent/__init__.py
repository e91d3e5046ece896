"""Recency joins: which rows of one side happened recently, as seen from each row of the other.

Reading order: ``pairs`` (kernels), ``regions`` (where partners can lie), ``narrowing`` (a row
pattern near regions only), ``choice`` (which side first).
"""
