"""HTTP without events: errors, JSON, addresses, formats, bytes on their way to a client.

Reading order: ``responses``, ``problems`` (errors as RFC 9457 documents), ``jsonable`` (values as
JSON), ``request_head`` (headers and addresses), ``negotiation`` (formats of bodies and answers),
``body_pipe`` (from a thread to the event loop), ``event_stream`` (server-sent events).
"""
