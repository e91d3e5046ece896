"""SKIP TILL ANY MATCH without the explosion: what cannot be completed is never built.

Reading order
    states, lists, walk, count, choice, search
"""
