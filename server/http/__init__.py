"""HTTP mechanics.  Reading order: ``responses``, ``problems`` (errors, RFC 9457), ``answers``
(models of JSON answers), ``jsonable`` (values as JSON), ``request_head`` (headers and paths),
``plain_head`` (ordinary headers), ``negotiation`` (formats), ``cloud_events`` (binary mode),
``preconditions`` (tags and ranges), ``body_pipe`` (thread to event loop), ``event_stream``
(server-sent events).
"""
