"""HTTP mechanics.  Reading order: ``replies`` (JSON, errors as of RFC 9457), ``requests`` (headers,
paths, conditions, ranges, formats, CloudEvents), ``streamed`` (answers sent block by block).
"""
