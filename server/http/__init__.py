"""HTTP without events: errors, JSON, addresses, formats, bytes on their way to a client.

Reading order: ``responses``, ``problems`` (errors as RFC 9457 documents), ``jsonable`` (values as
JSON), ``request_head`` (headers and addresses), ``plain_head`` (of requests with nothing unusual),
``negotiation`` (formats of bodies and answers), ``cloud_events`` (whose attributes are headers),
``preconditions`` (tags and ranges), ``body_pipe`` (from a thread to the event loop),
``event_stream`` (server-sent events).
"""
