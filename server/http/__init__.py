"""HTTP mechanics.  Reading order: ``replies`` (JSON, errors as of RFC 9457), ``answers`` (models of
JSON answers), ``requests`` (headers, paths, conditions, ranges, formats, CloudEvents).
"""
