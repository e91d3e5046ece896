"""HTTP mechanics.  Reading order: ``replies`` (JSON, errors as of RFC 9457), ``requests`` (headers,
paths, conditions, ranges, formats, CloudEvents), ``route`` (parameters),
``streamed`` (answers in blocks, the pace of a client).
"""
